"""Where a router went in a document, and what it accepted (RDR2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from colligate.documents import Passage
from colligate.evidence.structure_tree import StructureTree


@dataclass
class Routing:
    """Where routing went in one document; nodes are those of `tree`.

    `retrieved` are the blocks of the passages found. `answers` and `expanded` map a block
    accepted and a heading opened to the round it was in: 0 is the search, n the n-th expansion.
    `refused` of `shown` subtrees gave nothing. `passages` are the blocks accepted, in document
    order, neighbours of one section together.
    """

    tree: StructureTree
    retrieved: tuple[int, ...] = ()
    answers: dict[int, int] = field(default_factory=dict)
    expanded: dict[int, int] = field(default_factory=dict)
    shown: int = 0
    refused: int = 0

    @property
    def passages(self) -> tuple[Passage, ...]:
        """What the reader is given of this document."""
        return self.tree.passages(self.answers)

    def rounds_of(self, passage: Passage) -> tuple[int, ...]:
        """The rounds in which the blocks of a passage were accepted, in order."""
        nodes = self.tree.nodes
        within = (n for n in self.answers if passage.span.contains(nodes[n].span))
        return tuple(sorted({self.answers[n] for n in within}))

    def to_json(self) -> dict[str, Any]:
        """For programs; spans count code points of the document's text."""

        def node(number: int, found: int) -> dict[str, Any]:
            at = self.tree.nodes[number]
            return {
                "node": number,
                "text": at.text,
                "start": at.span.start,
                "end": at.span.end,
                "round": found,
            }

        return {
            "document": self.tree.document.id,
            "title": self.tree.document.title,
            "retrieved": list(self.retrieved),
            "answers": [node(number, found) for number, found in sorted(self.answers.items())],
            "expanded": [node(number, found) for number, found in sorted(self.expanded.items())],
            "subtrees_shown": self.shown,
            "subtrees_refused": self.refused,
            "passages": [
                {
                    "section": list(p.section),
                    "page": p.page,
                    "start": p.span.start,
                    "end": p.span.end,
                }
                for p in self.passages
            ],
        }
