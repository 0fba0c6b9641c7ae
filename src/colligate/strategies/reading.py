"""The last step most strategies share: a reader answers from passages, and is checked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar, cast

from pydantic import BaseModel

from colligate.documents import Passage
from colligate.errors import BudgetExceeded, ContextTooSmall, MalformedOutput
from colligate.evidence.citing import Evidence, Stated, cite, resolved
from colligate.evidence.reader import (
    FORMS,
    Form,
    Joined,
    JoinedReply,
    Reply,
    Statement,
    asked_for_quotes,
    reader_messages,
    states_nothing,
    stating,
)
from colligate.models import Message, Role
from colligate.strategies.answer import Answer, not_found
from colligate.strategies.run import Run
from colligate.strategies.trace import Answered, Noted, Pruned

Prompt = Callable[[Sequence[Passage]], list[Message]]
"""What is asked of a reader, around the passages it is shown."""


class Statements(Protocol):
    """A reply that has statements."""

    @property
    def statements(self) -> Sequence[Statement | Joined]: ...


R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")


async def read(
    question: str,
    passages: Sequence[Passage],
    run: Run,
    *,
    strategy: str,
    evidence: Sequence[Evidence],
    form: Form = Form.SHORT,
    role: Role = Role.READER,
    messages: Prompt | None = None,
) -> Answer:
    """Ask the reader, resolve what it cites, and say what was not found.

    `messages` is another prompt around the same passages; the reply is that of `form`. A reader
    that says it found the answer and quotes nothing is asked once more.

    The answer is found when at least one statement is cited: what the reader says without a
    place in a document is never passed on as an answer.
    """
    shown = tuple(evidence)
    if not passages:
        run.emit(Answered(False, "", ()))
        return not_found(question, strategy, shown)
    asked = messages(passages) if messages else reader_messages(question, passages, form)
    reply = await _reply(asked, form, role, run)
    documents = await run.documents_of(passages)
    # Locating a quote in a long document takes a while: not on the event loop.
    cited = await asyncio.to_thread(cite, question, reply.statements, passages, documents)
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
        short=reply.short_answer.strip() or None,
        citations=cited.citations,
        evidence=shown,
    )


async def _reply(asked: Sequence[Message], form: Form, role: Role, run: Run) -> Reply | JoinedReply:
    """What the reader says, asked once more where it says that it found what it does not quote."""
    wanted = FORMS[form].reply
    ask = partial(run.structured, role=role, max_tokens=FORMS[form].tokens)
    first = await ask(asked, wanted)
    if not states_nothing(first.value):
        return first.value
    run.emit(Noted("the reader says it found the answer and quotes nothing: it is asked again"))
    try:
        again = await ask(asked_for_quotes(asked, first.completions[-1].text), stating(wanted))
    except (BudgetExceeded, ContextTooSmall, MalformedOutput) as error:
        run.emit(Noted(f"the reader's first reply stands: {error.what}"))
        return first.value
    return again.value


async def stated(
    question: str,
    passages: Sequence[Passage],
    run: Run,
    *,
    messages: Sequence[Message],
    schema: type[R],
    max_tokens: int,
    role: Role = Role.READER,
) -> tuple[R, list[Stated]]:
    """A reply with statements about these passages, and those of them that stand there.

    `schema` has `statements`. Those that no passage supports are left out and said in the trace.

    Raises:
        MalformedOutput: the model gives no valid reply.
    """
    reply = (await run.structured(messages, schema, role=role, max_tokens=max_tokens)).value
    return reply, await located(question, cast(Statements, reply).statements, passages, run)


async def located(
    question: str,
    statements: Sequence[Statement | Joined],
    passages: Sequence[Passage],
    run: Run,
) -> list[Stated]:
    """The statements that the passages support, with their places; the trace says of the others."""
    documents = await run.documents_of(passages)
    found, dropped = await asyncio.to_thread(resolved, question, statements, passages, documents)
    for problem in dropped:
        run.emit(Noted(problem))
    return [each for each in found if each.places]


async def fitting(
    question: str,
    ranked: Sequence[Passage],
    run: Run,
    form: Form = Form.SHORT,
    *,
    role: Role = Role.READER,
    messages: Prompt | None = None,
) -> list[Passage]:
    """The first passages that fit the reader's window; those left out are said, never in silence.

    One is always kept: whether it fits is the call's to say. `messages` is as in `read`.
    """
    wanted = FORMS[form]
    kept = await first_that_fit(
        ranked,
        messages or (lambda passages: reader_messages(question, passages, form)),
        run,
        role=role,
        max_tokens=wanted.tokens,
        schema=wanted.reply,
    )
    if len(kept) < len(ranked):
        left_out = tuple(passage.span for passage in ranked[len(kept) :])
        reason = f"{len(left_out)} of {len(ranked)} passages do not fit the model's window"
        run.emit(Pruned(left_out, reason))
        run.warn(reason)
    return kept


async def first_that_fit(
    ranked: Sequence[T],
    prompt: Callable[[Sequence[T]], Sequence[Message]],
    run: Run,
    *,
    role: Role,
    max_tokens: int,
    schema: type[BaseModel] | None = None,
) -> list[T]:
    """As many of the first as a prompt in the model's window holds beside its reply; at least one.

    The more there are, the longer is the prompt: their number is found by halving.
    """

    async def fits(count: int) -> bool:
        room = await run.room(role, prompt(ranked[:count]), max_tokens, schema=schema)
        return room is None or room >= 0

    if len(ranked) < 2 or await fits(len(ranked)):
        return list(ranked)
    kept, too_many = 1, len(ranked)
    while too_many - kept > 1:
        middle = (kept + too_many) // 2
        if await fits(middle):
            kept = middle
        else:
            too_many = middle
    return list(ranked[:kept])
