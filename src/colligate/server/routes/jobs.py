"""Files on their way into a library."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from fastapi import APIRouter, Response

from colligate.server.jobs import Job
from colligate.server.routes.shapes import JobShape
from colligate.server.server import TheServer
from colligate.server.stream import EventStream, sse

router = APIRouter(prefix="/api/jobs", tags=["jobs"])


@router.get("/{job_id}", summary="How far it is", response_model=JobShape)
async def job(job_id: str, server: TheServer) -> dict[str, Any]:
    """Its state, progress, and what could not be read."""
    return server.jobs.job(job_id).to_json()


@router.get("/{job_id}/events", summary="Follow it", response_class=EventStream)
async def events(job_id: str, server: TheServer) -> Response:
    """`progress` whenever something has changed, `done` at the end; each has the whole job."""
    return server.stream(_events(server.jobs.job(job_id)))


@router.delete("/{job_id}", status_code=204, summary="Stop it")
async def cancel(job_id: str, server: TheServer) -> Response:
    """Files that were read by then stay in the library."""
    server.jobs.job(job_id).cancel()
    return Response(status_code=204)


async def _events(job: Job) -> AsyncIterator[bytes]:
    async for said in job.follow():
        yield sse("done" if said["state"] in ("done", "failed", "cancelled") else "progress", said)
