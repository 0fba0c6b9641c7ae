"""The Structural Fusion Score as a retriever: the passages of a search in the order of Phi."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import ClassVar

from colligate.core.parameters import require_min
from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.documents import Hit
from colligate.library.sources import SearchMode
from colligate.models import Capability
from colligate.strategies.duquad.signals import Signal, fuse_signals


@dataclass(frozen=True)
class SFS:
    """Score the best passages of a search by DuQUAD's fused signals (equations 1 to 3).

    A signal that the models cannot give is left out, and the others share its weight.

    Attributes:
        documents: passages of the search that are scored; no others are returned
        alpha: weight of the similarity of meaning
        beta: weight of the likelihood of the question after the passage
        gamma: weight of the model's attention, compared with that to the neighbours
        pool: passages that the search gives to the reranker, if there is one
    """

    name: ClassVar[str] = "sfs"
    needs: ClassVar[Needs] = Needs(
        required=frozenset(), optional=frozenset({Capability.LIKELIHOOD, Capability.ATTENTION})
    )

    documents: int = 20  # N, as in DuQUAD
    alpha: float = 0.5  # equation 3 and Table 6, as the next two
    beta: float = 1.0
    gamma: float = 0.5
    mode: SearchMode = SearchMode.HYBRID
    pool: int = 50

    def __post_init__(self) -> None:
        require_min(self, documents=1, pool=1, alpha=0, beta=0, gamma=0)

    async def retrieve(
        self, query: str, run: Run, *, k: int, documents: Collection[str] | None = None
    ) -> list[Hit]:
        """Return the `k` best passages by Phi; of equal ones the better of the search first."""
        hits = await run.search(
            query, k=self.documents, pool=self.pool, mode=self.mode, documents=documents
        )
        weights = dict(zip(Signal, (self.alpha, self.beta, self.gamma), strict=True))
        fused = await fuse_signals(query, [hit.passage for hit in hits], run, weights)
        scored = [replace(hit, score=phi) for hit, phi in zip(hits, fused.scores, strict=True)]
        return sorted(scored, key=lambda hit: -hit.score)[:k]
