"""The numbered documents of a question: which they are, which fit a prompt, how each scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from colligate.documents import Passage
from colligate.evidence.document_scores import (
    Score,
    document_scores,
    score_messages,
    score_schema,
)
from colligate.evidence.views import Numbered
from colligate.library.sources import SearchMode
from colligate.models import Message, Role
from colligate.strategies.maxp import best_documents
from colligate.strategies.reading import first_that_fit
from colligate.strategies.run import Run
from colligate.strategies.signals import similarities
from colligate.strategies.trace import Pruned
from colligate.token_estimate import estimate_tokens

Units = Literal["auto", "documents", "passages"]

_SHORT = 600  # estimated tokens of a document that is read whole


async def unit_passages(
    question: str, run: Run, units: Units, most: int, *, pool: int, mode: SearchMode
) -> tuple[Literal["documents", "passages"], list[Passage]]:
    """What is read, at most `most`: whole documents in their order, or passages of a search.

    `auto` takes documents where there are no more than that in view and all are short. Of more
    documents than that the best are taken, best first.
    """
    infos = await run.sources.documents()
    ids = [info.id for info in infos]
    if units == "passages" or (units == "auto" and not await _few_and_short(ids, most, run)):
        hits = await run.search(question, k=most, pool=pool, mode=mode)
        return "passages", [hit.passage for hit in hits]
    if len(ids) > most:
        ids = await best_documents(question, run, most, mode)
    documents = [await run.document(each) for each in ids]
    return "documents", [each.passage(each.span(0, len(each))) for each in documents]


async def _few_and_short(ids: Sequence[str], most: int, run: Run) -> bool:
    if len(ids) > most:
        return False
    for each in ids:
        if estimate_tokens((await run.document(each)).text) > _SHORT:
            return False
    return True


async def by_similarity(question: str, numbered: Sequence[Numbered], run: Run) -> list[Numbered]:
    """The documents, those most like the question first; as they come without an embedder."""
    if run.embedder is None:
        return list(numbered)
    alike = await similarities(question, [passage for _, passage in numbered], run)
    ranked = sorted(zip(alike, numbered, strict=True), key=lambda pair: -pair[0])
    return [each for _, each in ranked]


async def fitting_documents(
    ranked: Sequence[Numbered],
    prompt: Callable[[Sequence[Numbered]], list[Message]],
    max_tokens: int,
    run: Run,
    call: str,
) -> list[Numbered]:
    """The first documents whose prompt fits the reader's window; those left out are said.

    One is always kept: whether it fits is the call's to say.
    """
    kept = await first_that_fit(ranked, prompt, run, role=Role.READER, max_tokens=max_tokens)
    if left_out := ranked[len(kept) :]:
        reason = f"{len(left_out)} of {len(ranked)} documents do not fit the window of {call}"
        run.emit(Pruned(tuple(passage.span for _, passage in left_out), reason))
        run.warn(reason)
    return kept


async def scored(
    question: str, candidates: Sequence[Numbered], run: Run, *, max_tokens: int
) -> tuple[dict[int, Score], tuple[int, ...]]:
    """How likely each document answers the question alone, all in one call; which got no score.

    What the reply leaves out is asked for once more. Without a score a document has 0 and no
    answer.
    """
    prompt = partial(score_messages, question)
    wanted = await fitting_documents(candidates, prompt, max_tokens, run, "the scores' call")
    found: dict[int, Score] = {}
    for _ in range(2):
        wanted = [each for each in wanted if each[0] not in found]
        if not wanted:
            break
        numbers = [number for number, _ in wanted]
        reply = await run.chat(prompt(wanted), max_tokens=max_tokens, schema=score_schema(numbers))
        found |= document_scores(reply.text, numbers)
    missing = tuple(number for number, _ in candidates if number not in found)
    if missing:
        run.warn(f"{len(missing)} of {len(candidates)} documents got no score: it is taken as 0")
    return {number: found.get(number, Score(0.0, "")) for number, _ in candidates}, missing
