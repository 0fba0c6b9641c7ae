"""Runs: listed, looked at, replayed, forgotten."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from colligate.server.routes.asking import events as events_of
from colligate.server.routes.shapes import RunShape
from colligate.server.server import TheServer
from colligate.server.stream import EventStream

router = APIRouter(prefix="/api", tags=["runs"])

_NUMBER = re.compile(r"[0-9]{1,18}")


@router.get(
    "/libraries/{name}/runs", summary="List a library's runs", response_model=list[RunShape]
)
async def runs(name: str, server: TheServer) -> list[dict[str, Any]]:
    """The newest first."""
    server.libraries.folder(name)
    return [run.to_json() for run in server.runs.of(name)]


@router.get("/runs/{run_id}", summary="A run and its answer")
async def run(run_id: str, server: TheServer) -> dict[str, Any]:
    """With `answer` or `problem` once it has ended."""
    found = server.runs.run(run_id)
    return found.to_json() | await found.outcome()


@router.get("/runs/{run_id}/events", summary="Replay and follow it", response_class=EventStream)
async def events(
    run_id: str,
    server: TheServer,
    prompts: Annotated[bool, Query(description="With what models were asked.")] = False,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """All its events from the first, or from the one after Last-Event-ID, until it ends."""
    after = int(last_event_id) if last_event_id and _NUMBER.fullmatch(last_event_id) else 0
    return server.stream(events_of(server, server.runs.run(run_id), after, prompts=prompts))


@router.delete("/runs/{run_id}", status_code=204, summary="Cancel or forget it")
async def cancel(run_id: str, server: TheServer) -> Response:
    """One under way is stopped and stays in the list; one that has ended is deleted."""
    found = server.runs.run(run_id)
    if found.over:
        await server.runs.forget(found)
    else:
        found.cancel()
        await found.wait()
    return Response(status_code=204)
