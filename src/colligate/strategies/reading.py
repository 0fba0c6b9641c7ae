"""The last step most strategies share: a reader answers from passages, and is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from colligate.documents import Passage
from colligate.evidence.citing import Evidence, cite
from colligate.evidence.reader import FORMS, Form, reader_messages
from colligate.models import Role
from colligate.strategies.answer import Answer, not_found
from colligate.strategies.run import Run
from colligate.strategies.trace import Answered, Pruned


async def read(
    question: str,
    passages: Sequence[Passage],
    run: Run,
    *,
    strategy: str,
    evidence: Sequence[Evidence],
    form: Form = Form.SHORT,
) -> Answer:
    """Ask the reader, resolve what it cites, and say what was not found.

    The answer is found when at least one statement is cited: what the reader says without a
    place in a document is never passed on as an answer.
    """
    shown = tuple(evidence)
    if not passages:
        run.emit(Answered(False, "", ()))
        return not_found(question, strategy, shown)
    wanted = FORMS[form]
    reply = await run.structured(
        reader_messages(question, passages, form), wanted.reply, max_tokens=wanted.tokens
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


async def fitting(
    question: str, ranked: Sequence[Passage], run: Run, form: Form = Form.SHORT
) -> list[Passage]:
    """The first passages that fit the reader's window; those left out are said, never in silence.

    One is always kept: whether it fits is the call's to say.
    """
    kept = list(ranked)
    wanted = FORMS[form]
    while len(kept) > 1:
        messages = reader_messages(question, kept, form)
        room = await run.room(Role.READER, messages, wanted.tokens, schema=wanted.reply)
        if room is None or room >= 0:
            break
        kept.pop()
    if len(kept) < len(ranked):
        left_out = tuple(passage.span for passage in ranked[len(kept) :])
        reason = f"{len(left_out)} of {len(ranked)} passages do not fit the model's window"
        run.emit(Pruned(left_out, reason))
        run.warn(reason)
    return kept
