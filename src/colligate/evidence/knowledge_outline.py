"""DualRAG's outline: what is known so far, under the entities it is about, with its sources."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

from colligate.documents import Passage, Span
from colligate.evidence.material import material

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
        return material("\n\n".join(dict.fromkeys(blocks) if flat else blocks)) or NOTHING

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
