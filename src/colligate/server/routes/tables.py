"""Tables over a library's documents: estimate, fill, correct a cell, download."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Request, Response

from colligate.concurrency import in_thread
from colligate.server.routes.runs import respond
from colligate.server.shapes import Correction, EstimateShape, TableRequest, TableShape
from colligate.server.state import State
from colligate.table import TABLE_FORMATS, read_table

router = APIRouter(prefix="/api", tags=["tables"])


@router.post(
    "/libraries/{name}/table",
    summary="Fill a table",
    responses={200: {"model": TableShape, "content": {"text/event-stream": {}}}},
)
async def fill_table(name: str, body: TableRequest, request: Request, server: State) -> Response:
    """Return a row for each document, every cell cited, or server-sent events with `stream`.

    The events are those of a question; an `event` named `filled` has the rows of a document, and
    the last is `table` or `problem`. Cells that were filled before are not filled again.
    """
    return await respond(name, body, request, server)


@router.post("/libraries/{name}/table/estimate", summary="What a table takes")
async def estimate_table(name: str, body: TableRequest, server: State) -> EstimateShape:
    """Return how many documents are still to be read, about how many calls and tokens it takes."""
    return await server.tables.estimate(name, body)


@router.put("/runs/{run_id}/cell", summary="Correct a cell")
async def correct_cell(run_id: str, body: Correction, server: State) -> dict[str, Any]:
    """Keep what a person says of a cell, which is never filled again; return the cell."""
    return await server.runs.correct(server.runs.get(run_id), body)


@router.get("/runs/{run_id}/table.{ending}", summary="A run's table as a file")
async def export_table(
    run_id: str, ending: Literal["xlsx", "csv", "json", "md"], server: State
) -> Response:
    """Return the table as a spreadsheet, CSV, JSON or Markdown."""
    table = await in_thread(read_table, await server.runs.get(run_id).result("table"))
    media_type, render = TABLE_FORMATS[f".{ending}"]
    name = {"Content-Disposition": f'attachment; filename="table.{ending}"'}
    return Response(await in_thread(render, table), headers=name, media_type=media_type)
