"""How relevant each paragraph of some documents is: LongRefiner's local scores of the leaves."""

from __future__ import annotations

import math
from collections.abc import Sequence

from colligate.documents import Hit, Span
from colligate.evidence.article import Article
from colligate.library.sources import SearchMode
from colligate.strategies.run import Run


async def leaf_scores(
    question: str, articles: Sequence[Article], run: Run, mode: SearchMode
) -> list[list[float]]:
    """A score for each of `article.leaves`, higher is better, an article a row.

    The reranker's, of every leaf, where the run has one. Else the search's: a leaf has the score
    of the best passage that it shares text with, times the root of how much of the one lies in
    the other, and 0 where the search found none. The root, as the halves of a good passage are
    both good, and a straight share would rank them with the sixtieth.
    """
    spans = [[article.nodes[leaf].span for leaf in article.leaves] for article in articles]
    if run.reranker is not None:
        passages = [
            article.document.passage(span)
            for article, row in zip(articles, spans, strict=True)
            for span in row
        ]
        scores = iter(await run.rerank_scores(question, passages) if passages else ())
        return [[next(scores) for _ in row] for row in spans]
    names = {article.document.id for article in articles}
    infos = [info for info in await run.sources.documents() if info.id in names]
    # All of them: how far down a paragraph comes is its score too.
    count = max(1, sum(info.passages for info in infos))
    hits = await run.search(question, k=count, mode=mode, documents=names) if names else []
    found: dict[str, list[Hit]] = {}
    for hit in hits:
        found.setdefault(hit.passage.document_id, []).append(hit)
    return [[_shared(span, found.get(span.document_id, ())) for span in row] for row in spans]


def _shared(leaf: Span, hits: Sequence[Hit]) -> float:
    """The best score among passages, weighed by the larger part that is common."""
    scores = [0.0]
    for hit in hits:
        if common := leaf.intersection(hit.passage.span):
            part = len(common) / min(len(leaf), len(hit.passage.span))
            scores.append(hit.score * math.sqrt(part))
    return max(scores)
