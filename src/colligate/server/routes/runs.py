"""Questions and their runs: ask, list, read, replay, forget."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Request, Response
from sse_starlette import ServerSentEvent

from colligate.concurrency import in_thread
from colligate.export import FORMATS
from colligate.server.errors import Conflict
from colligate.server.runs import RecordedRun
from colligate.server.shapes import AnswerShape, AskRequest, Feedback, RunRequest
from colligate.server.state import ServerState, State
from colligate.server.stream import AsciiJSONResponse, EventStream, encode_json, is_heard, sse

_NUMBER = re.compile(r"[0-9]{1,18}")
_QUEUED = b'{"event": "queued"'

router = APIRouter(prefix="/api", tags=["runs"])


@router.post(
    "/libraries/{name}/ask",
    summary="Ask a question",
    responses={200: {"model": AnswerShape, "content": {"text/event-stream": {}}}},
)
async def ask_library(name: str, body: AskRequest, request: Request, server: State) -> Response:
    """Return the answer with its citations, or server-sent events with `stream`.

    The events are `run` (its id), `queued` (its place), `event` (a step of the trace), and last
    `answer` or `problem`.
    """
    return await respond(name, body, request, server)


async def respond(
    library: str, body: RunRequest, request: Request, server: ServerState
) -> Response:
    """Start a run and return its events or its result; a client that hangs up ends it."""
    run = await server.runs.start(library, body)
    if body.stream:
        return server.stream(run_events(server, run), run.cancel)
    if not await is_heard(request, run):
        run.cancel()
        return Response(status_code=499)
    return AsciiJSONResponse(await run.result(body.makes))


@router.get("/libraries/{name}/runs", summary="List a library's runs")
async def list_runs(name: str, server: State) -> list[RecordedRun]:
    """List the runs, the newest first."""
    server.libraries.folder(name)
    return [run for run in server.runs.list_runs(name) if run.visible]


@router.get("/runs/{run_id}", summary="A run and its answer")
async def read_run(run_id: str, server: State) -> dict[str, Any]:
    """Return the run, with `answer`, `table` or `problem` once it has ended."""
    run = server.runs.get(run_id)
    return {**run.model_dump(), **await run.outcome()}


@router.get("/runs/{run_id}/answer.{ending}", summary="A run's answer as a file")
async def export_run(
    run_id: str, ending: Literal["md", "html", "docx", "bib"], server: State
) -> Response:
    """Return the answer with its sources as Markdown, HTML or Word, or its documents as BibTeX."""
    run = _ended(server, run_id)
    media_type, render = FORMATS[f".{ending}"]
    content = await in_thread(render, await run.result())
    name = {"Content-Disposition": f'attachment; filename="answer.{ending}"'}
    return Response(content, headers=name, media_type=media_type)


@router.post("/runs/{run_id}/feedback", status_code=204, summary="Say whether an answer is good")
async def rate_run(run_id: str, body: Feedback, server: State) -> Response:
    """Keep it with the run, in place of what was said before."""
    await server.runs.rate(_ended(server, run_id), body)
    return Response(status_code=204)


@router.get(
    "/libraries/{name}/feedback",
    summary="The answers that people rated, as a data set",
    response_class=Response,
    responses={200: {"content": {"application/jsonl": {}}}},
)
async def export_feedback(name: str, server: State) -> Response:
    """Return JSON Lines that `colligate bench run own` reads: a good answer is the right one."""
    lines = [encode_json(each) + b"\n" for each in await server.runs.list_feedback(name)]
    return Response(b"".join(lines), media_type="application/jsonl")


def _ended(server: ServerState, run_id: str) -> RecordedRun:
    run = server.runs.get(run_id)
    if not run.ended:
        raise Conflict("the run has no answer so far", "", "ask again when it has ended")
    return run


@router.get("/runs/{run_id}/events", summary="Replay and follow a run", response_class=EventStream)
async def follow_run(
    run_id: str, server: State, last_event_id: Annotated[str | None, Header()] = None
) -> Response:
    """Send all its events from the first, or from the one after Last-Event-ID, until it ends."""
    after = int(last_event_id) if last_event_id and _NUMBER.fullmatch(last_event_id) else 0
    return server.stream(run_events(server, server.runs.get(run_id), after))


@router.delete("/runs/{run_id}", status_code=204, summary="Cancel or forget a run")
async def delete_run(run_id: str, server: State) -> Response:
    """Stop a run under way, which stays in the list; delete one that has ended."""
    run = server.runs.get(run_id)
    if run.ended:
        await server.runs.forget(run)
    else:
        run.cancel()
        await run.wait()
    return Response(status_code=204)


async def run_events(
    server: ServerState, run: RecordedRun, after: int = 0
) -> AsyncIterator[ServerSentEvent]:
    """Yield a run as server-sent events: `run`, then each event after a number, then its end."""
    yield sse("run", {"id": run.id})
    async for number, line in server.runs.follow(run, after):
        yield sse("queued" if line.startswith(_QUEUED) else "event", line, number)
    for kind, value in (await run.outcome()).items():
        yield sse(kind, value)
