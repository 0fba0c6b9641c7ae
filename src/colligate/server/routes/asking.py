"""Asking a library."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from colligate.core.events import Trace
from colligate.core.parameters import list_parameters
from colligate.core.strategy import Strategy, list_strategies, load_strategy
from colligate.engine import DEFAULT_STRATEGY
from colligate.errors import UsageError
from colligate.server.errors import Busy, problem_response
from colligate.server.routes.shapes import AnswerShape
from colligate.server.runs import Ask, Run
from colligate.server.server import Server, TheServer
from colligate.server.settings import Serving
from colligate.server.stream import Json, sse, unless_hung_up
from colligate.session import configure

router = APIRouter(prefix="/api/libraries/{name}", tags=["asking"])

Value = str | int | float | bool | None
_MODELS = ("str", "str|none")  # how parameters that name models and adapters are written
_QUEUED = b'{"event": "queued"'


class Asked(BaseModel):
    """A question, and how it is to be answered."""

    model_config = ConfigDict(extra="forbid")
    question: Annotated[str, Field(min_length=1, description="What to ask.")]
    strategy: Annotated[
        str,
        Field(
            max_length=100,
            description="How: GET /api/about says what each does and needs.",
            json_schema_extra={"enum": sorted(list_strategies())},
        ),
    ] = DEFAULT_STRATEGY
    parameters: Annotated[
        dict[str, Value | list[Value]],
        Field(max_length=100, description="Of the strategy, by name."),
    ] = {}
    documents: Annotated[
        list[str] | None,
        Field(max_length=10_000, description="Ids to answer over; without, the whole library."),
    ] = None
    max_tokens_total: Annotated[int | None, Field(ge=1, le=1 << 53)] = None
    timeout: Annotated[float | None, Field(gt=0, le=86_400, description="Seconds.")] = None
    stream: Annotated[bool, Field(description="Send events as they come.")] = False

    def ask(self, serving: Serving) -> Ask:
        """The same with the strategy set up.

        Raises:
            UsageError: the question is empty or too long, or there is no such strategy or
                parameter, or one may not be set so.
        """
        if not self.question.strip():
            raise UsageError("the question is empty", hint="write a question")
        if len(self.question) > (most := serving.question_characters):
            why = f"it has {len(self.question):,} characters and the limit is {most:,}"
            raise UsageError("the question is too long", why, "shorten it")
        return Ask(
            self.question,
            _strategy(self.strategy, self.parameters, serving),
            self.parameters,
            None if self.documents is None else tuple(self.documents),
            self.max_tokens_total,
            self.timeout,
        )


def _strategy(name: str, given: Mapping[str, Value | list[Value]], serving: Serving) -> Strategy:
    """A strategy by name with parameters as JSON values.

    Raises:
        UsageError: there is no such strategy, parameter or value, or it names a model that is
            not among those allowed.
    """
    kind = load_strategy(name)
    models = {each.name for each in list_parameters(kind) if each.type in _MODELS}
    for each, value in given.items():
        if not re.fullmatch(r"\w+", each):
            raise UsageError(f"{name} has no parameter {each!r}")
        if each in models and _written(value) not in ("none", *serving.allow_models):
            why = "a server loads no model that a question names"
            hint = "start it with --allow-model NAME"
            raise UsageError(f"{each} of {name} cannot be set here", why, hint)
    texts = [f"{each}={_written(value)}" for each, value in given.items()]
    return configure(kind, serving.settings, texts, Trace(keep=False))


@router.post(
    "/ask",
    summary="Ask a question",
    responses={200: {"model": AnswerShape, "content": {"text/event-stream": {}}}},
)
async def ask(
    name: str,
    body: Asked,
    request: Request,
    server: TheServer,
    prompts: Annotated[bool, Query(description="Events with what models were asked.")] = False,
    detached: Annotated[bool, Query(description="Go on when the client hangs up.")] = False,
) -> Response:
    """The answer with its citations; with `stream`, server-sent events.

    The events are `run` (its id), `queued` (its place), `event` (a step of the trace), and last
    `answer` or `problem`.
    """
    run = await server.runs.begin(name, body.ask(server.serving))
    if body.stream:
        ended = None if detached else run.cancel
        try:
            return server.stream(events(server, run, prompts=prompts), ended)
        except Busy:
            run.cancel()
            raise
    if not await unless_hung_up(request, run.wait):
        if not detached:
            run.cancel()
        return Response(status_code=499)
    outcome = await run.outcome()
    if "problem" in outcome:
        return problem_response(outcome["problem"])
    return Json(outcome["answer"])


async def events(
    server: Server, run: Run, after: int = 0, *, prompts: bool = False
) -> AsyncIterator[bytes]:
    """A run as server-sent events, numbered, from the one after `after`."""
    yield sse("run", {"id": run.id})
    async for number, line in server.runs.follow(run, after, prompts=prompts):
        yield sse("queued" if line.startswith(_QUEUED) else "event", line, number)
    for kind, said in (await run.outcome()).items():
        yield sse(kind, said)


def _written(value: Value | list[Value]) -> str:
    """A value as a person would set it on the command line."""
    if isinstance(value, list):
        return ",".join(_written(each) for each in value)
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return str(value)
