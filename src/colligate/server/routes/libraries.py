"""Libraries: made, filled, searched, deleted."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response, UploadFile
from pydantic import BaseModel, ConfigDict, Field

from colligate.documents import Hit
from colligate.errors import ColligateError
from colligate.library.sources import SearchMode
from colligate.server.errors import Conflict
from colligate.server.routes.shapes import JobStarted, LibraryShape, PassageShape
from colligate.server.server import Server, TheServer
from colligate.server.uploads import space_left

_SPARE = 64 << 20  # bytes left free on the disk


class NewLibrary(BaseModel):
    """The library to make."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")]


def router(upload_files: int) -> APIRouter:
    """The paths under /api/libraries; a request may carry `upload_files` files."""
    routes = APIRouter(prefix="/api/libraries", tags=["libraries"])
    routes.add_api_route("", libraries, methods=["GET"], summary="List the libraries")
    routes.add_api_route("", create, methods=["POST"], status_code=201, summary="Make a library")
    routes.add_api_route(
        "/{name}",
        delete,
        methods=["DELETE"],
        status_code=204,
        summary="Delete a library with everything in it",
    )
    routes.add_api_route(
        "/{name}/files",
        upload,
        methods=["POST"],
        status_code=202,
        summary="Add files",
        form_limits={"max_files": upload_files, "max_fields": 1},
    )
    routes.add_api_route("/{name}/search", search, methods=["GET"], summary="Find passages")
    return routes


async def libraries(server: TheServer) -> list[LibraryShape]:
    """All libraries, with how much is in them."""
    return [await _described(server, name) for name in server.libraries.names()]


async def create(body: NewLibrary, server: TheServer) -> LibraryShape:
    """An empty library."""
    await server.libraries.create(body.name)
    return await _described(server, body.name)


async def delete(name: str, server: TheServer) -> Response:
    """Its documents, the files that came for it and its runs go as well."""
    async with server.libraries.leaving(name):
        await server.jobs.cancel(name)
        await server.runs.forget_library(name)
    return Response(status_code=204)


async def upload(name: str, files: list[UploadFile], server: TheServer) -> JobStarted:
    """Files of any kind that colligate reads; they are read one request after another."""
    folder = server.libraries.folder(name)
    if space_left(folder) - sum(file.size or 0 for file in files) < _SPARE:
        raise Conflict("the server's disk is full", "", "free some space")
    job = server.jobs.open(name)
    try:
        for file in files:
            await server.jobs.store(job, file.file, file.filename)
            server.metrics.uploaded.inc(file.size or 0)
    except BaseException as error:
        await server.jobs.drop(job)
        if isinstance(error, OSError):
            raise ColligateError("cannot keep the files", error.strerror or "", "") from error
        raise
    server.jobs.start(job)
    return {"job": job.id}


async def search(
    name: str,
    server: TheServer,
    q: Annotated[str, Query(min_length=1, max_length=2000)],
    k: Annotated[int, Query(ge=1, le=200)] = 10,
    mode: SearchMode = SearchMode.HYBRID,
) -> list[PassageShape]:
    """The best passages, best first."""
    library = await server.libraries.library(name)
    return [_found(hit) for hit in await library.search(q, k=k, mode=mode)]


async def _described(server: Server, name: str) -> LibraryShape:
    infos = await (await server.libraries.library(name)).documents()
    return {
        "name": name,
        "documents": len(infos),
        "pages": sum(info.pages for info in infos),
        "passages": sum(info.passages for info in infos),
    }


def _found(hit: Hit) -> PassageShape:
    passage = hit.passage
    return {
        "document": passage.span.document_id,
        "title": passage.title,
        "section": list(passage.section),
        "page": passage.page,
        "start": passage.span.start,
        "end": passage.span.end,
        "text": passage.text,
        "score": hit.score,
    }
