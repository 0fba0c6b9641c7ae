"""Knowledge of a DualRAG run: the outline K by entity with its sources, and the thoughts R."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import zip_longest

from pydantic import BaseModel

from colligate.core.answer import Place, Stated
from colligate.core.events import pluralize
from colligate.core.prompts import escape, render_thoughts
from colligate.core.run import Run, Shown
from colligate.documents import Hit, Passage, Span
from colligate.models import Message, Role

NOTHING = "(nothing yet)"
"""What a prompt shows for an outline without knowledge."""

ELSE = "else"
"""The name that collects what belongs to no entity."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of knowledge in a model's words, and the sentences of the documents behind it.

    If it is not `located` in them, `spans` are the passages that it was made from.
    """

    text: str
    spans: tuple[Span, ...]
    located: bool = True


@dataclass
class Entity:
    """The knowledge of one entity, in the order it was found, and the passages read for it."""

    fragments: list[Fragment] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


def _append(fragments: list[Fragment], fragment: Fragment) -> None:
    """Add a fragment, or add its spans to the one with the same text."""
    for place, other in enumerate(fragments):
        if _bare(other.text) == _bare(fragment.text) and other.located == fragment.located:
            spans = tuple(dict.fromkeys([*other.spans, *fragment.spans]))
            fragments[place] = replace(other, spans=spans)
            return
    fragments.append(fragment)


def _bare(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")


class Stop(StrEnum):
    """Why the rounds ended."""

    ENOUGH = "enough"  # the Reasoner misses nothing
    ROUNDS = "rounds"  # all that are allowed
    BUDGET = "budget"  # the rest of it is reserved for the answer


@dataclass
class Knowledge:
    """The knowledge by entity (the outline K), the thoughts R, and why the rounds ended.

    The outline only grows; `entities` are in the order they were first known. `passages` were
    read, `found` are those that any query had among its best. `flat` shows the outline without its
    entities.
    """

    question: str
    flat: bool = False
    entities: dict[str, Entity] = field(default_factory=dict)
    thoughts: list[str] = field(default_factory=list)
    passages: dict[str, Passage] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)
    rounds: int = 0
    stop: Stop = Stop.BUDGET  # until the rounds end by themselves

    def unseen(self, name: str, passages: Iterable[Passage]) -> list[Passage]:
        """Return the passages that were not read for this entity yet."""
        seen = self.entities[name].seen if name in self.entities else set()
        return [passage for passage in passages if passage.id not in seen]

    def merge(self, name: str, fragments: Sequence[Fragment], passages: Sequence[Passage]) -> None:
        """Append what is known of an entity (equation 10) from these passages.

        A repeated statement is kept once, with the spans of both. An entity without knowledge is
        not kept, and its passages may be read for it again.
        """
        self.passages.update((passage.id, passage) for passage in passages)
        if fragments or name in self.entities:
            entity = self.entities.setdefault(name, Entity())
            entity.seen.update(passage.id for passage in passages)
            for fragment in fragments:
                _append(entity.fragments, fragment)

    def render(self, *, without: int = 0) -> str:
        """Return blocks of `#### entity` and what is known of it.

        `without` leaves out so many fragments: the first of each entity in turn, so that every
        entity keeps its newest ones.
        """
        left_out = {id(fragment) for _, fragment in self.entries[:without]}
        blocks = []
        for name, entity in self.entities.items():
            texts = [each.text for each in entity.fragments if id(each) not in left_out]
            if texts:
                blocks += [*([] if self.flat else [f"#### {name}"]), *texts]
        return escape("\n\n".join(dict.fromkeys(blocks) if self.flat else blocks)) or NOTHING

    @property
    def size(self) -> int:
        return sum(len(entity.fragments) for entity in self.entities.values())

    @property
    def entries(self) -> list[tuple[str, Fragment]]:
        """All fragments with their entities, the first of every entity before the second of any."""
        turns = zip_longest(*([(n, f) for f in e.fragments] for n, e in self.entities.items()))
        return [entry for turn in turns for entry in turn if entry is not None]

    def count_redundant(self, found: Sequence[Sequence[Hit]]) -> int:
        """Return how many queries found nothing that an earlier query had not; remember what they
        found."""
        redundant = 0
        for hits in found:
            ids = {hit.passage.id for hit in hits}
            redundant += ids <= self.found
            self.found |= ids
        return redundant

    async def render_outline(
        self,
        run: Run,
        prompt: Callable[[str], list[Message]],
        max_tokens: int,
        schema: type[BaseModel] | None = None,
    ) -> str:
        """Return the outline for a prompt; if it does not fit, without its oldest fragments."""
        without, size = 0, self.size
        while True:
            text = self.render(without=without)
            room = await run.room(Role.READER, prompt(text), max_tokens, schema=schema)
            if room is None or room >= 0 or without == size:
                break
            without = min(size, without + max(1, size // 8))
        if without:
            run.warn("the outline does not fit the model's window: its oldest parts are left out")
        return text

    @property
    def stated(self) -> list[Stated]:
        """The located statements of the outline with their places, as an answer can cite them."""
        located = dict.fromkeys(each for _, each in self.entries if each.located)
        return [
            Stated(each.text, tuple(Place(span, "outline") for span in each.spans))
            for each in located
        ]

    async def for_reader(
        self, run: Run, tokens: int, *, outline: bool = True
    ) -> tuple[list[Shown], str]:
        """Return K_T and R_T for the reader (equation 4): passages, and notes.

        The passages behind the outline are shown whole, up to `tokens` and a quarter of the window,
        of the others the sentences alone; the notes are the `outline` and the thoughts. With 0
        tokens the outline itself is shown in the place of passages, and the notes are the thoughts.
        """
        model = run.model(Role.READER)
        window = model.context_tokens
        left = tokens if window is None else min(tokens, window // 4)
        shown: dict[Passage, list[str]] = {}
        for name, fragment in self.entries:
            for span in fragment.spans:
                around = next(each for each in self.passages.values() if each.span.contains(span))
                part = around
                if around not in shown:
                    cost = await model.count_tokens(f"{around.full_title}\n{around.text}")
                    if cost <= left:
                        left -= cost
                    elif fragment.located:
                        part = (await run.document(span.document_id)).passage(span)
                    else:
                        heading = () if self.flat or name == ELSE else (name,)
                        part = replace(around, text=fragment.text, section=heading)
                shown.setdefault(part, []).append(name)
                if part is not around and not fragment.located:
                    break  # the same text for each passage that it was made from
        passages = [
            Shown(passage, float(len(names)), _reason(names)) for passage, names in shown.items()
        ]
        notes = [render_thoughts(self.thoughts)] if self.thoughts else []
        if tokens and outline and self.size:
            most = 0 if window is None else window - window // 4
            text = await self.render_outline(run, lambda text: [Message("user", text)], most)
            notes.insert(0, f"<outline>\n{text}\n</outline>")
        return passages, "\n\n".join(notes)

    @property
    def shown_entities(self) -> list[str]:
        """The entities that prompts name; none if the outline is flat."""
        return [] if self.flat else [name for name in self.entities if name != ELSE]

    @property
    def latest(self) -> str:
        """The latest thought, or the question if there is none."""
        return self.thoughts[-1] if self.thoughts else self.question


def _reason(names: Sequence[str]) -> str:
    """Return why a passage is shown: the entities whose knowledge comes from it."""
    about = ", ".join(dict.fromkeys(f"“{name}”" for name in names))
    return f"{pluralize(len(names), 'sentence')} about {about}"
