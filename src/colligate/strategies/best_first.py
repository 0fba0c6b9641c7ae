"""The best passages first, as many as a budget of tokens holds, then one answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from colligate.documents import Document, Passage
from colligate.documents.chunking import Chunker
from colligate.evidence.citing import Evidence
from colligate.evidence.reader import Form
from colligate.library.sources import SearchMode
from colligate.models import Role
from colligate.strategies.answer import Answer
from colligate.strategies.numbered import unit_passages
from colligate.strategies.reading import fitting, read
from colligate.strategies.run import Run
from colligate.strategies.trace import Pruned


async def read_best_first(
    question: str,
    passages: Sequence[Passage],
    scores: Sequence[float],
    run: Run,
    *,
    strategy: str,
    by: str,
    form: Form = Form.SHORT,
    most: int | None = None,
    budget: int | None = None,
) -> Answer:
    """Read passages by falling score; of equal ones those that were given earlier come first.

    No more than `most`, and no more than have `budget` tokens of the reader together; None is no
    limit. `by` says whose scores they are.
    """
    order = sorted(range(len(passages)), key=lambda place: -scores[place])[:most]
    ranked = [passages[place] for place in order]
    if budget is not None:
        ranked = await within(ranked, budget, run)
    kept = await fitting(question, ranked, run, form)
    evidence = [
        Evidence(passage.span, scores[place], f"rank {rank} by {by}")
        for rank, (place, passage) in enumerate(zip(order, kept, strict=False), 1)
    ]
    return await read(question, kept, run, strategy=strategy, evidence=evidence, form=form)


async def within(ranked: Sequence[Passage], budget: int, run: Run) -> list[Passage]:
    """The first passages that have no more than `budget` tokens together, each with its title.

    The first that does not fit ends it. Should that be the very first, its beginning is kept.
    """
    model = run.model(Role.READER)
    kept: list[Passage] = []
    left = budget
    for passage in ranked:
        tokens = await model.count_tokens(f"{passage.title}\n{passage.text}")
        if tokens > left:
            break
        kept.append(passage)
        left -= tokens
    if ranked and not kept and budget > 0:
        kept = await _beginning(ranked[0], budget, run)
    if len(kept) < len(ranked):
        left_out = tuple(passage.span for passage in ranked[len(kept) :])
        run.emit(Pruned(left_out, f"the budget of {budget} tokens holds {len(kept)} passages"))
    return kept


async def _beginning(passage: Passage, budget: int, run: Run) -> list[Passage]:
    model = run.model(Role.READER)
    room = budget - await model.count_tokens(f"{passage.title}\n")
    ends = [end for _, end in await model.token_spans(passage.text)]
    if room < 1 or not ends:
        return []
    document = await run.document(passage.document_id)
    start = passage.span.start
    return [document.passage(document.span(start, start + ends[min(room, len(ends)) - 1]))]


async def chunked(
    question: str, run: Run, chunker: Chunker, *, documents: int, mode: SearchMode
) -> list[Passage]:
    """The chunks of the documents in view, of the best `documents` where there are more.

    Documents come in their order, or best first; chunks in theirs.
    """
    whole = await whole_documents(question, run, documents, mode)

    def cut() -> list[Passage]:
        return [each.passage(span) for each in whole for span in chunker(each)]

    return await asyncio.to_thread(cut)


async def whole_documents(question: str, run: Run, most: int, mode: SearchMode) -> list[Document]:
    """The documents in view in their order; of more than `most` the best, best first."""
    _, passages = await unit_passages(question, run, "documents", most, pool=most, mode=mode)
    return [await run.document(passage.document_id) for passage in passages]
