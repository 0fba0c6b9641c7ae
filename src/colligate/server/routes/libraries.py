"""Libraries: list, create, fill, search, delete; uploads under way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Response, UploadFile
from pydantic import BaseModel, Field
from sse_starlette import ServerSentEvent

from colligate.library.sources import SearchMode, select_documents
from colligate.server.audit import note_use
from colligate.server.config import LIBRARY_NAME
from colligate.server.errors import Conflict
from colligate.server.shapes import LibraryShape, PassageShape, describe_passage
from colligate.server.state import ServerState, State
from colligate.server.stream import EventStream, sse
from colligate.server.uploads import UploadJob, free_space

_RESERVE = 64 << 20  # bytes left free on the disk

router = APIRouter(prefix="/api/libraries", tags=["libraries"])


class NewLibrary(BaseModel, extra="forbid"):
    """The library to make."""

    name: Annotated[str, Field(pattern=f"^{LIBRARY_NAME}$")]


@router.get("", summary="List the libraries")
async def list_libraries(server: State) -> list[LibraryShape]:
    """List all libraries with their numbers of documents, pages and passages."""
    return [await _describe(server, name) for name in server.libraries.list_names()]


@router.post("", status_code=201, summary="Make a library")
async def create_library(body: NewLibrary, server: State) -> LibraryShape:
    """Make an empty library."""
    await server.libraries.create(body.name)
    return await _describe(server, body.name)


@router.delete("/{name}", status_code=204, summary="Delete a library with everything in it")
async def delete_library(name: str, server: State) -> Response:
    """Delete a library with its documents, uploaded files and runs."""
    async with server.libraries.delete(name):
        await server.jobs.cancel(name)
        await server.runs.forget_library(name)
    return Response(status_code=204)


@router.get("/{name}/search", summary="Find passages")
async def search_library(
    name: str,
    server: State,
    q: Annotated[str, Query(min_length=1, max_length=2000)],
    k: Annotated[int, Query(ge=1, le=200)] = 10,
    mode: SearchMode = SearchMode.HYBRID,
    where: Annotated[list[str] | None, Query(max_length=20)] = None,
) -> list[PassageShape]:
    """Return the best passages, best first; `where` are conditions on their documents."""
    library = await server.libraries.open_library(name)
    within = await select_documents(library, where) if where else None
    hits = await library.search(q, k=k, mode=mode, documents=within)
    note_use(name, [hit.passage.document_id for hit in hits])
    return [describe_passage(hit) for hit in hits]


def upload_router(max_files: int) -> APIRouter:
    """Return the route that takes files, at most `max_files` a request."""
    route = APIRouter(tags=["libraries"])
    route.add_api_route(
        "/api/libraries/{name}/files",
        upload_files,
        methods=["POST"],
        status_code=202,
        summary="Add files",
        form_limits={"max_files": max_files, "max_fields": 1},
    )
    return route


async def upload_files(name: str, files: list[UploadFile], server: State) -> dict[str, str]:
    """Accept files of any kind that colligate reads; the `job` reads them, one after another."""
    folder = server.libraries.folder(name)
    if free_space(folder) - sum(file.size or 0 for file in files) < _RESERVE:
        raise Conflict("the server's disk is full", "", "free some space")
    job = server.jobs.open(name)
    try:
        for file in files:
            await server.jobs.store(job, file.file, file.filename)
            server.metrics.uploaded.inc(file.size or 0)
    except BaseException:
        await server.jobs.discard(job)
        raise
    server.jobs.start(job)
    return {"job": job.id}


async def _describe(server: ServerState, name: str) -> LibraryShape:
    infos = await (await server.libraries.open_library(name)).documents()
    return {
        "name": name,
        "documents": len(infos),
        "pages": sum(info.pages for info in infos),
        "passages": sum(info.passages for info in infos),
    }


jobs_router = APIRouter(prefix="/api/jobs", tags=["jobs"])


@jobs_router.get("/{job_id}", summary="Progress of an upload")
async def read_job(job_id: str, server: State) -> UploadJob:
    """Return its state, its progress, and the files that could not be read."""
    return server.jobs.get(job_id)


@jobs_router.get("/{job_id}/events", summary="Follow an upload", response_class=EventStream)
async def follow_job(job_id: str, server: State) -> Response:
    """Send `progress` at each change and `done` at the end; each has the whole job."""
    return server.stream(_events(server.jobs.get(job_id)))


@jobs_router.delete("/{job_id}", status_code=204, summary="Stop an upload")
async def cancel_job(job_id: str, server: State) -> Response:
    """Stop it; files that were read by then stay in the library."""
    server.jobs.get(job_id).cancel()
    return Response(status_code=204)


async def _events(job: UploadJob) -> AsyncIterator[ServerSentEvent]:
    async for shown in job.follow():
        yield sse("done" if job.ended else "progress", shown)
