"""What baselines share that search in a loop, or shorten what they found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from colligate.core.events import Event, pluralize
from colligate.core.run import Run, Shown
from colligate.documents import Hit, Passage, Span
from colligate.documents.compress import CompressedPassage
from colligate.library.sources import SearchMode

_LONGEST_QUERY = 60  # characters of one that a reason repeats


@dataclass
class Lookup:
    """The passages that searches found, search by search, in their order.

    Each search returns `k` passages, with a reranker the best of `pool`.
    """

    run: Run
    k: int
    pool: int
    mode: SearchMode
    searches: list[tuple[str, list[Hit]]] = field(default_factory=list)

    async def search(self, query: str) -> list[Passage]:
        """Search once more and return the passages."""
        hits = await self.run.search(query, k=self.k, pool=self.pool, mode=self.mode)
        self.searches.append((query, hits))
        return [hit.passage for hit in hits]

    async def possible(self) -> bool:
        """Return whether there is anything to search."""
        return any(info.passages for info in await self.run.sources.documents())

    @property
    def passages(self) -> list[Passage]:
        """All of them once, in the order they were found."""
        return list(dict.fromkeys(hit.passage for _, hits in self.searches for hit in hits))

    @property
    def latest_first(self) -> list[Passage]:
        """The same, the last search first: a full prompt then lacks the oldest passages."""
        by_search = ([hit.passage for hit in hits] for _, hits in reversed(self.searches))
        return list(dict.fromkeys(passage for found in by_search for passage in found))

    def of(self, passages: Sequence[Passage]) -> list[Shown]:
        """Return these passages, each with the search that found it first."""
        why: dict[Passage, Shown] = {}
        for query, hits in self.searches:
            short = query if len(query) <= _LONGEST_QUERY else f"{query[:_LONGEST_QUERY]}…"
            for rank, hit in enumerate(hits, 1):
                reason = f"rank {rank} of the search for “{short}”"
                why.setdefault(hit.passage, Shown(hit.passage, hit.score, reason))
        return [why[passage] for passage in passages]

    def by_turns(self, most: int) -> list[Shown]:
        """Return the `most` best: the first of every search before the second of any, each once."""
        turns = max((len(hits) for _, hits in self.searches), default=0)
        ranked = [
            hits[rank].passage
            for rank in range(turns)
            for _, hits in self.searches
            if rank < len(hits)
        ]
        return self.of(list(dict.fromkeys(ranked))[:most])


@dataclass(frozen=True)
class Shortened(Event):
    """Passages were shortened: what is left of each, and its share of the passage's characters."""

    spans: tuple[Span, ...]
    texts: tuple[str, ...]
    shares: tuple[float, ...]

    def line(self) -> str:
        return f"shortened {pluralize(len(self.spans), 'passage')}"


def show_shortened(
    passages: Sequence[CompressedPassage], scores: Sequence[float], run: Run
) -> list[Shown]:
    """Return compressed passages for the reader, in their order; empty ones are left out.

    The evidence is each passage whole with the share of it that is shown.
    """
    left = [(each, score) for each, score in zip(passages, scores, strict=True) if each.kept]
    if passages and not left:
        run.warn("the compressor kept nothing of the passages: let it drop less")
    run.emit(
        Shortened(
            tuple(each.span for each, _ in left),
            tuple(each.text for each, _ in left),
            tuple(each.share for each, _ in left),
        )
    )
    return [
        Shown(each, score, f"{each.share:.0%} of its characters were shown") for each, score in left
    ]
