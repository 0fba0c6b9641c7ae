"""The passages for one entity: the union over its queries, then the best by one ranking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from colligate.documents import Hit, Passage
from colligate.library.sources import SearchMode
from colligate.strategies.run import Run
from colligate.strategies.side_by_side import side_by_side

_RRF = 60  # Cormack, Clarke and Buettcher (SIGIR 2009)


async def passages_for(
    queries: Sequence[str],
    run: Run,
    *,
    retrieved: int,
    k: int,
    mode: SearchMode,
    rerank_query: str | None,
    least_score: float | None = None,
) -> tuple[list[Hit], str]:
    """The `k` best passages for these queries together, and how they were ranked.

    `retrieved` are searched for each query. With a reranker they are ranked by its score for
    `rerank_query`, and those below or at `least_score` are left out first. Without one, or where
    there is no `rerank_query`, their rankings are joined by reciprocal rank fusion.
    """
    found = await side_by_side(run.search(query, k=retrieved, mode=mode) for query in queries)
    passages = {hit.passage.id: hit.passage for hits in found for hit in hits}
    if run.reranker is None or rerank_query is None or not passages:
        hits, how = _fused(found), "search" if len(queries) == 1 else "reciprocal rank fusion"
    else:
        scores = await run.rerank_scores(rerank_query, list(passages.values()))
        ranked = zip(passages.values(), scores, strict=True)
        hits = [Hit(p, s) for p, s in ranked if least_score is None or s > least_score]
        hits.sort(key=lambda hit: -hit.score)
        how = f"reranked for “{rerank_query}”"
    return hits[:k], how


def _fused(found: Sequence[Sequence[Hit]]) -> list[Hit]:
    """One ranking of several; of one, itself. Equals keep the order of the queries."""
    if len(found) == 1:
        return list(found[0])
    sums: dict[str, Hit] = {}
    for hits in found:
        for place, hit in enumerate(hits, 1):
            so_far = sums.get(hit.passage.id)
            score = (so_far.score if so_far else 0.0) + 1 / (_RRF + place)
            sums[hit.passage.id] = replace(hit, score=score)
    return sorted(sums.values(), key=lambda hit: -hit.score)


def by_title(hits: Sequence[Hit]) -> dict[str, list[Hit]]:
    """Passages grouped by the title of their document, in order of the best of each."""
    groups: dict[str, list[Hit]] = {}
    for hit in hits:
        groups.setdefault(_title(hit.passage), []).append(hit)
    return groups


def _title(passage: Passage) -> str:
    return " ".join(passage.title.split()) or passage.document_id
