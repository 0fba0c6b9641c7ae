"""Ask a library a question."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from colligate.server.routes.runs import run_events
from colligate.server.runs import AskRequest
from colligate.server.shapes import RunAnswerShape
from colligate.server.state import State
from colligate.server.stream import AsciiJSONResponse, finish_unless_hung_up

router = APIRouter(prefix="/api/libraries/{name}", tags=["asking"])


@router.post(
    "/ask",
    summary="Ask a question",
    responses={200: {"model": RunAnswerShape, "content": {"text/event-stream": {}}}},
)
async def ask_library(
    name: str,
    body: AskRequest,
    request: Request,
    server: State,
    prompts: Annotated[
        bool, Query(description="Events with the messages models were sent.")
    ] = False,
    detached: Annotated[bool, Query(description="Continue when the client hangs up.")] = False,
) -> Response:
    """Return the answer with its citations, or server-sent events with `stream`.

    The events are `run` (its id), `queued` (its place), `event` (a step of the trace), and last
    `answer` or `problem`.
    """
    run = await server.runs.start(name, body)
    if body.stream:
        events = run_events(server, run, prompts=prompts)
        return server.stream_run(run, events, detached=detached)
    if not await finish_unless_hung_up(request, run.wait):
        if not detached:
            run.cancel()
        return Response(status_code=499)
    return AsciiJSONResponse(await run.answer())
