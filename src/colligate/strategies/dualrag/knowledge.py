"""Knowledge of a DualRAG run: the outline K by entity with its sources, and the thoughts R."""

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

from colligate.core.citing import Evidence, Place, Stated
from colligate.core.events import pluralize
from colligate.core.fit import fit_budget
from colligate.core.lookup import SourcePassage
from colligate.core.prompts import escape, render_thoughts
from colligate.core.reader import FORMS, Form, reader_messages
from colligate.core.run import Run
from colligate.documents import Hit, Passage, Span
from colligate.models import Message, Role

NOTHING = "(nothing yet)"
"""What a prompt shows for an outline without knowledge."""


@dataclass(frozen=True, slots=True)
class Fragment:
    """A piece of knowledge in a model's words, and the sentences of the documents behind it."""

    text: str
    spans: tuple[Span, ...]


def quote_sentence(passage: Passage, span: Span, text: str) -> Fragment:
    """Return a sentence under its document's title, unless it names it: pronouns need a name."""
    text = " ".join(text.split())
    named = passage.title.casefold() in text.casefold()
    return Fragment(text if named else f"{passage.full_title}: {text}", (span,))


@dataclass
class Entity:
    """The knowledge of one entity, in the order it was found, and the passages read for it."""

    fragments: list[Fragment] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)


@dataclass
class KnowledgeOutline:
    """The knowledge of one run: entities by name, in the order they were first known.

    It only grows. Each fragment keeps the spans it came from, so everything in the outline leads
    back into the documents.
    """

    entities: dict[str, Entity] = field(default_factory=dict)

    def unseen(self, name: str, passages: Iterable[Passage]) -> list[Passage]:
        """Return the passages that were not read for this entity yet."""
        seen = self.entities[name].seen if name in self.entities else set()
        return [passage for passage in passages if passage.id not in seen]

    def merge(
        self, name: str, fragments: Sequence[Fragment], passages: Iterable[Passage]
    ) -> tuple[Fragment, ...]:
        """Append what is known of an entity (equation 10) from these passages; return what is new.

        A repeated statement is kept once, with the spans of both. A fragment is new if it rests on
        words that were not in the outline before. An entity without knowledge is not kept, and its
        passages may be read for it again.
        """
        if not fragments and name not in self.entities:
            return ()
        known = {span for _, span in self.sources}
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
        """Return blocks of `#### entity` and what is known of it; `flat` has no headings.

        `without` leaves out so many fragments: the first of each entity in turn, so that every
        entity keeps its newest ones.
        """
        rows = zip_longest(*(entity.fragments for entity in self.entities.values()))
        oldest = [each for row in rows for each in row if each is not None]
        left_out = set(map(id, oldest[:without]))
        blocks = []
        for name, entity in self.entities.items():
            texts = [each.text for each in entity.fragments if id(each) not in left_out]
            if texts:
                blocks += [*([] if flat else [f"#### {name}"]), *texts]
        return escape("\n\n".join(dict.fromkeys(blocks) if flat else blocks)) or NOTHING

    @property
    def size(self) -> int:
        """The number of fragments."""
        return sum(len(entity.fragments) for entity in self.entities.values())

    @property
    def sources(self) -> list[tuple[str, Span]]:
        """Each span behind the knowledge, once, with the entity it was first found for.

        The first fragment of every entity comes before the second of any, so that every entity
        keeps some if not all can be shown.
        """
        ranked = zip_longest(*([(n, f) for f in e.fragments] for n, e in self.entities.items()))
        named: dict[Span, str] = {}
        for row in ranked:
            for name, fragment in filter(None, row):
                for span in fragment.spans:
                    named.setdefault(span, name)
        return [(name, span) for span, name in named.items()]


def _append(fragments: list[Fragment], fragment: Fragment) -> None:
    """Add a fragment, or add its spans to the one with the same text."""
    for place, other in enumerate(fragments):
        if _bare(other.text) == _bare(fragment.text):
            spans = tuple(dict.fromkeys([*other.spans, *fragment.spans]))
            fragments[place] = Fragment(other.text, spans)
            return
    fragments.append(fragment)


def _bare(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".")


# Entity linking. The paper leaves it to the prompt and compares names exactly. A small model seldom
# writes a name twice in the same way, and what is then read twice is paid for twice.

ELSE = "else"
"""The name that collects what belongs to no entity; nothing is linked to it."""

Linking = Literal["exact", "name", "similar"]
"""How names are linked: by the same characters, the same words, or the same meaning."""


@dataclass(frozen=True, slots=True)
class Link:
    """A name that was asked for, the name it is linked to, and why.

    `how` is "new" for an entity that the outline does not have; `similarity` is the cosine of a
    link by meaning.
    """

    asked: str
    name: str
    how: Literal["new", "exact", "name", "similar"]
    similarity: float | None = None


def link_names(
    asked: Sequence[str],
    known: Sequence[str],
    *,
    linking: Linking = "name",
    vectors: Mapping[str, NDArray[np.float32]] | None = None,
    threshold: float = 1.0,
) -> list[Link]:
    """Link each name to a known one or to an earlier one of `asked`; otherwise it is new.

    `vectors` are unit vectors of all names, for linking by meaning: the most similar name is
    chosen if the cosine is at least `threshold` and both have the same numbers.
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
        words = sort_name_words(asked)
        if same := [name for name in names if sort_name_words(name) == words]:
            return Link(asked, same[0], "name")
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


def sort_name_words(name: str) -> tuple[str, ...]:
    """Return the words of a name sorted, without case, punctuation, articles and genitives.

    >>> sort_name_words("The population of France"), sort_name_words("France's population")
    (('france', 'population'), ('france', 'population'))
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    words = sorted(re.findall(r"\w+", folded))
    return tuple(word for word in words if word not in _UNSAID) or tuple(words)


_ROMAN = re.compile(r"[IVX]+")


def _numbers(name: str) -> list[str]:
    """Return the numbers of a name, Roman ones too: years, reigns and parts differ by them."""
    words = re.findall(r"\w+", name)
    return sorted(w for w in words if any(c.isdigit() for c in w) or _ROMAN.fullmatch(w))


class Stop(StrEnum):
    """Why the rounds ended."""

    ENOUGH = "enough"  # the Reasoner misses nothing
    ROUNDS = "rounds"  # all that are allowed
    NOTHING_NEW = "nothing new"  # several rounds in a row found nothing new
    REPEATED = "repeated"  # nothing was new, and the Reasoner repeated itself
    BUDGET = "budget"  # the rest of it is reserved for the answer


@dataclass
class Knowledge:
    """The outline, the thoughts so far, the passages that were read, and why the rounds ended.

    `gathered` are D'_e of each entity and round, best first; `found` are the passages that any
    query had among its best. `flat` shows the outline without its entities.
    """

    question: str
    flat: bool = False
    outline: KnowledgeOutline = field(default_factory=KnowledgeOutline)
    thoughts: list[str] = field(default_factory=list)
    passages: dict[str, Passage] = field(default_factory=dict)
    gathered: list[tuple[str, list[Hit]]] = field(default_factory=list)
    found: set[str] = field(default_factory=set)
    rounds: int = 0
    stop: Stop = Stop.BUDGET  # until the rounds end by themselves

    def merge(
        self, name: str, fragments: Sequence[Fragment], passages: Sequence[Passage]
    ) -> tuple[Fragment, ...]:
        """Add knowledge of an entity from passages to the outline; return the new fragments."""
        self.passages.update((passage.id, passage) for passage in passages)
        return self.outline.merge(name, fragments, passages)

    def quote(self, passage: Passage, sentences: Sequence[tuple[Span, str]]) -> None:
        """Add sentences of a passage, which belong to no entity."""
        if sentences:
            self.merge(ELSE, [quote_sentence(passage, *each) for each in sentences], [passage])

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
        without, size = 0, self.outline.size
        while True:
            text = self.outline.render(without=without, flat=self.flat)
            room = await run.room(Role.READER, prompt(text), max_tokens, schema=schema)
            if room is None or room >= 0 or without == size:
                break
            without = min(size, without + max(1, size // 8))
        if without:
            run.warn("the outline does not fit the model's window: its oldest parts are left out")
        return text

    @property
    def stated(self) -> list[Stated]:
        """The statements of the outline with their places, as an answer can cite them."""
        places: dict[str, dict[Span, None]] = {}
        for entity in self.outline.entities.values():
            for each in entity.fragments:
                places.setdefault(each.text, {}).update(dict.fromkeys(each.spans))
        return [
            Stated(text, tuple(Place(span, "outline") for span in spans))
            for text, spans in places.items()
        ]

    async def for_reader(
        self,
        run: Run,
        form: Form,
        others: Sequence[SourcePassage],
        *,
        tokens: int,
        outline: bool = True,
    ) -> tuple[list[SourcePassage], str]:
        """Return what the reader is shown: passages, each with the reason why, and notes.

        First come the passages behind the outline, the first of every entity before the second of
        any; if they do not fit the model's window, only the sentences. `others` follow up to
        `tokens` of all together. The notes are the outline (unless that is the passages
        themselves) and the thoughts.
        """
        whole, parts = self.sources, await self._sentences(run)
        reply, longest = FORMS[form].reply, FORMS[form].tokens
        thoughts = [render_thoughts(self.thoughts)] if self.thoughts else []

        def notes(text: str) -> str:
            known = [f"<outline>\n{text}\n</outline>"] if outline and self.outline.size else []
            return "\n\n".join([*known, *thoughts])

        def ask(sources: Sequence[SourcePassage], text: str) -> list[Message]:
            passages = [passage for passage, _ in sources]
            return reader_messages(self.question, passages, form, notes=notes(text))

        text = await self.render_outline(run, partial(ask, parts), longest, reply)
        room = await run.room(Role.READER, ask(whole, text), longest, schema=reply)
        behind = whole if room is None or room >= 0 else parts
        known = {passage for passage, _ in whole}
        sources = [*behind, *(each for each in others if each[0] not in known)]
        model, left = run.model(Role.READER), run.tokens.left
        used = [await model.count_tokens(f"{p.full_title}\n{p.text}") for p, _ in behind]
        budget = max(tokens, sum(used))
        if left is not None:
            budget = min(budget, left - longest - await model.count_prompt(ask([], text)))
        passages = [passage for passage, _ in sources]
        kept = await fit_budget(passages, budget, run) or passages[:1]
        reasons = (evidence for _, evidence in sources)
        return list(zip(kept, reasons, strict=False)), notes(text)

    @property
    def behind(self) -> list[Passage]:
        """The passages behind the outline, the first of every entity before the second of any."""
        return [passage for passage, _ in self.sources]

    @property
    def shown_entities(self) -> list[str]:
        """The entities that prompts name; none if the outline is flat."""
        return [] if self.flat else [name for name in self.outline.entities if name != ELSE]

    @property
    def latest(self) -> str:
        """The latest thought, or the question if there is none."""
        return self.thoughts[-1] if self.thoughts else self.question

    @property
    def sources(self) -> list[SourcePassage]:
        """The same passages, each with the reason why it is shown."""
        found: dict[Passage, list[str]] = {}
        for name, span in self.outline.sources:
            around = next(each for each in self.passages.values() if each.span.contains(span))
            found.setdefault(around, []).append(name)
        return [
            (passage, Evidence(passage.span, float(len(names)), _reason(names)))
            for passage, names in found.items()
        ]

    async def _sentences(self, run: Run) -> list[SourcePassage]:
        found = []
        for name, span in self.outline.sources:
            document = await run.document(span.document_id)
            found.append((document.passage(span), Evidence(span, 1.0, _reason([name]))))
        return found


def _reason(names: Sequence[str]) -> str:
    """Return why a passage is shown: the entities whose knowledge comes from it."""
    about = ", ".join(dict.fromkeys(f"“{name}”" for name in names))
    return f"{pluralize(len(names), 'sentence')} about {about}"
