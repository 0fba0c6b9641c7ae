"""The last step most strategies share: a reader answers from passages, and is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from colligate.documents import Passage
from colligate.evidence.citing import Evidence, cite
from colligate.evidence.reader import REPLY_TOKENS, Reply, reader_messages
from colligate.strategies.answer import Answer, not_found
from colligate.strategies.run import Run
from colligate.strategies.trace import Answered


async def read(
    question: str,
    passages: Sequence[Passage],
    run: Run,
    *,
    strategy: str,
    evidence: Sequence[Evidence],
) -> Answer:
    """Ask the reader, resolve what it cites, and say what was not found.

    The answer is found when at least one statement is cited: what the reader says without a
    place in a document is never passed on as an answer.
    """
    shown = tuple(evidence)
    if not passages:
        run.emit(Answered(False, "", ()))
        return not_found(question, strategy, shown)
    reply = await run.structured(
        reader_messages(question, passages), Reply, max_tokens=REPLY_TOKENS
    )
    documents = await run.documents_of(passages)
    # Locating a quote in a long document takes a while: not on the event loop.
    cited = await asyncio.to_thread(cite, question, reply.value.statements, passages, documents)
    for problem in cited.dropped:
        run.warn(problem)
    run.emit(
        Answered(
            bool(cited.citations), cited.text, tuple(c.span for c in cited.citations), cited.dropped
        )
    )
    if not cited.citations:
        return not_found(question, strategy, shown)
    return Answer(
        question=question,
        strategy=strategy,
        text=cited.text,
        found=True,
        short=reply.value.short_answer.strip() or None,
        citations=cited.citations,
        evidence=shown,
    )
