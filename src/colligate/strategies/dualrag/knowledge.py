"""DualRAG's outline: what is known so far, under the entities it is about, with its sources."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from itertools import zip_longest
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from colligate.core.citing import Evidence
from colligate.core.prompts import escape, render_thoughts
from colligate.core.reader import FORMS, Form, reader_messages
from colligate.core.run import Run
from colligate.documents import Passage, Span
from colligate.models import Message, Role

NOTHING = "(nothing yet)"
"""What a prompt shows for an outline without knowledge."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of knowledge in a model's words, and the sentences of the documents it rests on."""

    text: str
    spans: tuple[Span, ...]


@dataclass
class Entity:
    """What is known of one entity, in the order it was found, and the passages read for it."""

    fragments: list[Fragment] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


@dataclass
class KnowledgeOutline:
    """The knowledge of one run: entities by name, in the order they were first known.

    It only grows. Each fragment keeps the spans it came from, so whatever is later said from the
    outline leads back into the documents.
    """

    entities: dict[str, Entity] = field(default_factory=dict)

    def unseen(self, name: str, passages: Iterable[Passage]) -> list[Passage]:
        """Those passages that were not read for this entity yet."""
        seen = self.entities[name].seen if name in self.entities else set()
        return [passage for passage in passages if passage.id not in seen]

    def merge(
        self, name: str, fragments: Sequence[Fragment], passages: Iterable[Passage]
    ) -> tuple[Fragment, ...]:
        """Append what these passages say of an entity; those fragments that are new.

        What is said twice of an entity stands once, with the spans of both. A fragment is new
        when it rests on words that the outline rested on nowhere before. An entity of which
        nothing is known is not kept, and its passages may be read for it again.
        """
        if not fragments and name not in self.entities:
            return ()
        known = {span for entity in self.entities.values() for each in entity.fragments
                 for span in each.spans}  # fmt: skip
        new = []
        entity = self.entities.setdefault(name, Entity())
        entity.seen.update(passage.id for passage in passages)
        for fragment in fragments:
            if not all(any(old.contains(span) for old in known) for span in fragment.spans):
                new.append(fragment)
                known.update(fragment.spans)
            _append(entity.fragments, fragment)
        return tuple(new)

    def render(self, *, without: int = 0, flat: bool = False) -> str:
        """Blocks of `#### entity` and what is known of it; `flat` has no entities.

        `without` leaves so many fragments out: the first of each entity in turn, so that every
        entity keeps its newest.
        """
        left_out = set(map(id, self._oldest()[:without]))
        blocks = []
        for name, entity in self.entities.items():
            texts = [each.text for each in entity.fragments if id(each) not in left_out]
            if texts:
                blocks += [*([] if flat else [f"#### {name}"]), *texts]
        return escape("\n\n".join(dict.fromkeys(blocks) if flat else blocks)) or NOTHING

    @property
    def size(self) -> int:
        """How many fragments there are."""
        return sum(len(entity.fragments) for entity in self.entities.values())

    @property
    def sources(self) -> list[tuple[str, Span]]:
        """Each span that knowledge rests on, once, with the entity it was first found for.

        The first fragment of every entity comes before the second of any: where not all can be
        shown, each entity keeps some.
        """
        ranked = zip_longest(*([(n, f) for f in e.fragments] for n, e in self.entities.items()))
        named: dict[Span, str] = {}
        for row in ranked:
            for name, fragment in filter(None, row):
                for span in fragment.spans:
                    named.setdefault(span, name)
        return [(name, span) for span, name in named.items()]

    def _oldest(self) -> list[Fragment]:
        rows = zip_longest(*(entity.fragments for entity in self.entities.values()))
        return [fragment for row in rows for fragment in row if fragment is not None]


def _append(fragments: list[Fragment], fragment: Fragment) -> None:
    """Add a fragment, or its spans to the one that says the same."""
    for place, other in enumerate(fragments):
        if _bare(other.text) == _bare(fragment.text):
            spans = tuple(dict.fromkeys([*other.spans, *fragment.spans]))
            fragments[place] = Fragment(other.text, spans)
            return
    fragments.append(fragment)


def _bare(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")


# Which entity of the outline a name means: DualRAG's linking, beyond names that are the same.
#
# The paper leaves it to the prompt and compares names exactly. A small model seldom writes a name
# twice in the same way, and what is then read twice is paid for twice.

ELSE = "else"
"""The name that collects what belongs to no entity; it is linked with nothing."""

Linking = Literal["exact", "name", "similar"]
"""How far linking goes: the same characters; the same words; the same meaning."""


@dataclass(frozen=True, slots=True)
class Link:
    """The name that was asked for, the one it goes under, and why.

    `how` is "new" for an entity the outline does not have; `similarity` is the cosine that linked.
    """

    asked: str
    name: str
    how: Literal["new", "exact", "name", "similar"]
    similarity: float | None = None


def links(
    asked: Sequence[str],
    known: Sequence[str],
    *,
    linking: Linking = "name",
    vectors: Mapping[str, NDArray[np.float32]] | None = None,
    threshold: float = 1.0,
) -> list[Link]:
    """Link each name to a known one, or to one asked for before it; else it is new.

    `vectors` are unit vectors of all the names, needed for linking by meaning: the most similar
    name is taken where the cosine is at least `threshold` and both name the same numbers.
    """
    names = [name for name in known if name != ELSE]
    found = []
    for each in asked:
        link = _link(each, names, linking, vectors if linking == "similar" else None, threshold)
        found.append(link)
        if link.how == "new" and link.name != ELSE:
            names.append(link.name)
    return found


def _link(
    asked: str,
    names: Sequence[str],
    linking: Linking,
    vectors: Mapping[str, NDArray[np.float32]] | None,
    threshold: float,
) -> Link:
    if asked.casefold() == ELSE:
        return Link(asked, ELSE, "new")
    if asked in names:
        return Link(asked, asked, "exact")
    if linking != "exact":
        for name in names:
            if words_of(name) == words_of(asked):
                return Link(asked, name, "name")
    if vectors is not None:
        near = {
            name: float(vectors[name] @ vectors[asked])
            for name in names
            if _numbers(name) == _numbers(asked)
        }
        best = max(near, key=lambda name: near[name], default=None)
        if best is not None and near[best] >= threshold:
            return Link(asked, best, "similar", near[best])
    return Link(asked, asked, "new")


_UNSAID = frozenset(("a", "an", "the", "of", "s"))  # they come and go with the order of words


def words_of(name: str) -> tuple[str, ...]:
    """The words of a name in one order, without case, marks, articles and genitives.

    >>> words_of("The population of France") == words_of("France's population")
    True
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    words = sorted(re.findall(r"\w+", folded))
    return tuple(word for word in words if word not in _UNSAID) or tuple(words)


_ROMAN = re.compile(r"[IVX]+")


def _numbers(name: str) -> list[str]:
    """The numbers of a name, also Roman ones: years, reigns and parts are told apart by them."""
    words = re.findall(r"\w+", name)
    return sorted(w for w in words if any(c.isdigit() for c in w) or _ROMAN.fullmatch(w))


class Stop(StrEnum):
    """Why no more was looked up."""

    ENOUGH = "enough"  # the Reasoner misses nothing
    ROUNDS = "rounds"  # as many as are allowed
    NOTHING_NEW = "nothing new"  # several rounds in a row found nothing
    REPEATED = "repeated"  # nothing was new, and the Reasoner said what it had said before
    BUDGET = "budget"  # what is left of it is kept for the answer


# What one DualRAG run knows, and what of it its prompts and its reader are shown.


@dataclass
class Knowledge:
    """The outline, the thoughts so far, the passages that were read, and how the rounds ended.

    `flat` shows the outline without its entities.
    """

    question: str
    flat: bool = False
    outline: KnowledgeOutline = field(default_factory=KnowledgeOutline)
    thoughts: list[str] = field(default_factory=list)
    passages: dict[str, Passage] = field(default_factory=dict)
    rounds: int = 0
    stop: Stop = Stop.ROUNDS

    def merge(
        self, name: str, fragments: Sequence[Fragment], passages: Sequence[Passage]
    ) -> tuple[Fragment, ...]:
        """Take what passages say of an entity into the outline; the fragments that are new."""
        self.passages.update((passage.id, passage) for passage in passages)
        return self.outline.merge(name, fragments, passages)

    async def shown(
        self,
        run: Run,
        prompt: Callable[[str], list[Message]],
        max_tokens: int,
        schema: type[BaseModel] | None = None,
    ) -> str:
        """The outline as a prompt shows it: where it does not fit, without its oldest fragments."""
        without, size = 0, self.outline.size
        while True:
            text = self.outline.render(without=without, flat=self.flat)
            room = await run.room(Role.READER, prompt(text), max_tokens, schema=schema)
            if room is None or room >= 0 or without == size:
                break
            without = min(size, without + max(1, size // 8))
        if without:
            run.warn("the outline did not fit the model's window: its oldest parts were left out")
        return text

    async def for_reader(
        self, run: Run, form: Form, *, outline: bool = True
    ) -> tuple[list[tuple[Passage, Evidence]], str]:
        """What the reader is shown: passages, each with the reason why, and notes.

        The passages that the outline rests on, the first of every entity before the second of
        any; where they do not fit the model's window, only the sentences that it rests on. The
        notes are the outline, unless that is the passages themselves, and the thoughts.
        """
        whole, parts = self._passages(), await self._sentences(run)
        reply, tokens = FORMS[form].reply, FORMS[form].tokens
        thoughts = [render_thoughts(self.thoughts)] if self.thoughts else []

        def notes(text: str) -> str:
            known = [f"<outline>\n{text}\n</outline>"] if outline else []
            return "\n\n".join([*known, *thoughts])

        def ask(sources: Sequence[tuple[Passage, Evidence]], text: str) -> list[Message]:
            passages = [passage for passage, _ in sources]
            return reader_messages(self.question, passages, form, notes=notes(text))

        text = await self.shown(run, partial(ask, parts), tokens, reply)
        room = await run.room(Role.READER, ask(whole, text), tokens, schema=reply)
        return (whole if room is None or room >= 0 else parts), notes(text)

    @property
    def latest(self) -> str:
        """The latest thought, or the question: what is looked up for want of anything better."""
        return self.thoughts[-1] if self.thoughts else self.question

    def _passages(self) -> list[tuple[Passage, Evidence]]:
        found: dict[Passage, list[str]] = {}
        for name, span in self.outline.sources:
            found.setdefault(self._passage_of(span), []).append(name)
        return [
            (passage, Evidence(passage.span, float(len(names)), _reason(names)))
            for passage, names in found.items()
        ]

    async def _sentences(self, run: Run) -> list[tuple[Passage, Evidence]]:
        return [
            (
                (await run.document(span.document_id)).passage(span),
                Evidence(span, 1.0, _reason([name])),
            )
            for name, span in self.outline.sources
        ]

    def _passage_of(self, span: Span) -> Passage:
        return next(each for each in self.passages.values() if each.span.contains(span))


def _reason(names: Sequence[str]) -> str:
    """Why it is shown, by the entities that knowledge of rests on it, once for each piece."""
    said = ", ".join(dict.fromkeys(f"“{name}”" for name in names))
    return f"{len(names)} sentence{'s' * (len(names) > 1)} say something of {said}"
