"""Documents ranked by their best passage: MaxP (Dai and Callan, SIGIR 2019)."""

from __future__ import annotations

from colligate.library.sources import SearchMode
from colligate.strategies.run import Run


async def best_documents(
    question: str, run: Run, count: int, mode: SearchMode = SearchMode.HYBRID
) -> list[str]:
    """The ids of the `count` best documents in view, best first.

    All of them, those without a passage that matches last, where there are no more than that.
    """
    infos = await run.sources.documents()
    k, most = 8 * count, sum(info.passages for info in infos)
    while True:
        hits = await run.search(question, k=k, mode=mode)
        found = list(dict.fromkeys(hit.passage.document_id for hit in hits))
        if len(found) >= count or len(hits) < k or k >= most:
            break
        k *= 4
    if len(infos) <= count:
        found += [info.id for info in infos if info.id not in set(found)]
    return found[:count]
