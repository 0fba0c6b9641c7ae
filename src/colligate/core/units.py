"""Units: which documents or passages a question is answered from."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Literal

from colligate.core.run import Run
from colligate.documents import Document, Hit, Passage, Span
from colligate.documents.tokens import estimate_tokens
from colligate.library.sources import DocumentInfo, SearchMode


async def rank_documents(
    question: str,
    run: Run,
    count: int,
    mode: SearchMode = SearchMode.HYBRID,
    among: Collection[str] | None = None,
) -> list[str]:
    """Return the ids of the `count` best documents in view, or `among` these, best first.

    Documents are ranked by their best passage: MaxP (Dai and Callan, SIGIR 2019). If there are no
    more than `count` all are returned, those without a matching passage last.
    """
    infos = [i for i in await run.sources.documents() if among is None or i.id in among]
    k, most = 8 * count, sum(info.passages for info in infos)
    while True:
        hits = await run.search(question, k=k, mode=mode, documents=among)
        found = list(dict.fromkeys(hit.passage.document_id for hit in hits))
        # Repeats are left out of the hits, so fewer than `k` do not mean that there are no more.
        enough = len(found) >= min(count, len(infos))
        if enough or not hits or k >= most or run.composed:
            break
        k *= 4
    if len(infos) <= count:
        found += [info.id for info in infos if info.id not in set(found)]
    return found[:count]


async def list_best(
    question: str, run: Run, count: int | None, mode: SearchMode
) -> list[DocumentInfo]:
    """Return the documents in view, of more than `count` the best by a search, in their order."""
    infos = await run.infos()
    if count is None or count >= len(infos):
        return infos
    best = set(await rank_documents(question, run, count, mode))
    run.warn(f"{len(best)} of {len(infos)} documents are read, the best by a search")
    return [info for info in infos if info.id in best]


_RRF = 60  # the constant of reciprocal rank fusion (Cormack, Clarke and Buettcher, SIGIR 2009)


def join_rankings(found: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Return what several searches found, the highest sum of reciprocal ranks first.

    Equal sums keep the order of the searches; one search stays as it is.
    """
    if len(found) == 1:
        return list(found[0])
    sums: dict[str, Hit] = {}
    for hits in found:
        for place, hit in enumerate(hits, 1):
            so_far = sums.get(hit.passage.id)
            score = (so_far.score if so_far else 0.0) + 1 / (_RRF + place)
            sums[hit.passage.id] = replace(hit, score=score)
    return sorted(sums.values(), key=lambda hit: -hit.score)


def join_neighbours(document: Document, parts: Iterable[tuple[int | None, Span]]) -> list[Passage]:
    """Return parts of a document, each after its section, as passages in their order.

    Neighbours in one section that only blanks separate are one passage.
    """
    spans: list[Span] = []
    before = None
    for section, span in parts:
        if spans and section == before and not document.text[spans[-1].end : span.start].strip():
            spans[-1] = replace(spans[-1], end=span.end)
        else:
            spans.append(span)
        before = section
    return [document.passage(span) for span in spans]


Units = Literal["auto", "documents", "passages"]

_SHORT = 600  # estimated tokens of a document that is read whole


async def choose_units(
    question: str, run: Run, units: Units, most: int, *, pool: int, mode: SearchMode
) -> tuple[Literal["documents", "passages"], list[Passage]]:
    """Return what to read, at most `most`: whole documents in their order, or passages of a search.

    `auto` chooses documents if at most `most` are in view and all are short, unless the run has a
    retriever. Of more documents the best are returned, best first.
    """
    infos = await run.sources.documents()
    ids = [info.id for info in infos]
    if units == "auto":
        whole = not run.composed and await _few_and_short(ids, most, run)
        units = "documents" if whole else "passages"
    if units == "passages":
        hits = await run.search(question, k=most, pool=pool, mode=mode)
        return "passages", [hit.passage for hit in hits]
    if len(ids) > most:
        ids = await rank_documents(question, run, most, mode)
    documents = [await run.document(each) for each in ids]
    return "documents", [each.passage(each.span(0, len(each))) for each in documents]


async def _few_and_short(ids: Sequence[str], most: int, run: Run) -> bool:
    if len(ids) > most:
        return False
    for each in ids:
        if estimate_tokens((await run.document(each)).text) > _SHORT:
            return False
    return True
