"""Uploads: files on their way into a library."""

from __future__ import annotations

from collections.abc import AsyncIterator

from fastapi import APIRouter, Response
from sse_starlette import ServerSentEvent

from colligate.server.shapes import JobShape
from colligate.server.state import State
from colligate.server.stream import EventStream, sse
from colligate.server.uploads import UploadJob

router = APIRouter(prefix="/api/jobs", tags=["jobs"])


@router.get("/{job_id}", summary="Progress of an upload")
async def read_job(job_id: str, server: State) -> JobShape:
    """Return its state, its progress, and the files that could not be read."""
    return server.jobs.job(job_id).to_json()


@router.get("/{job_id}/events", summary="Follow an upload", response_class=EventStream)
async def follow_job(job_id: str, server: State) -> Response:
    """Send `progress` at each change and `done` at the end; each has the whole job."""
    return server.stream(_events(server.jobs.job(job_id)))


@router.delete("/{job_id}", status_code=204, summary="Stop an upload")
async def cancel_job(job_id: str, server: State) -> Response:
    """Stop it; files that were read by then stay in the library."""
    server.jobs.job(job_id).cancel()
    return Response(status_code=204)


async def _events(job: UploadJob) -> AsyncIterator[ServerSentEvent]:
    async for shown in job.follow():
        yield sse("done" if job.ended else "progress", shown)
