"""Documents: their text, pages and trees."""

from __future__ import annotations

from pathlib import PurePath
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from colligate.concurrency import in_thread
from colligate.documents import Document
from colligate.documents.document import tree_json
from colligate.library.sources import DocumentInfo
from colligate.server.errors import NotHere
from colligate.server.routes.shapes import DocumentShape, DocumentText, PageText
from colligate.server.server import TheServer

_MOST = 200_000  # characters of text in one response

router = APIRouter(prefix="/api/libraries/{name}/documents", tags=["documents"])


@router.get("", summary="List the documents")
async def documents(name: str, server: TheServer) -> list[DocumentShape]:
    """All documents in the order they were added, without their texts."""
    infos = await (await server.libraries.library(name)).documents()
    return [_listed(info) for info in infos]


@router.get("/{document_id}", summary="A document's text, or a range of it")
async def document(
    name: str,
    document_id: str,
    server: TheServer,
    start: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
    end: Annotated[int | None, Query(ge=0, le=1 << 53)] = None,
) -> DocumentText:
    """Offsets count code points; `end` says how far the text given goes (200,000 at most)."""
    found = await (await server.libraries.library(name)).document(document_id)
    start = min(start, len(found))
    last = len(found) if end is None else min(max(end, start), len(found))
    last = min(last, start + _MOST)
    return {
        "id": found.id,
        "title": found.title,
        "characters": len(found),
        "language": found.language,
        "pages": [
            {"number": page.number, "start": page.start, "end": page.end} for page in found.pages
        ],
        "text": found.text[start:last],
        "start": start,
        "end": last,
    }


@router.get("/{document_id}/tree", summary="A document's structure tree")
async def tree(name: str, document_id: str, server: TheServer) -> dict[str, Any]:
    """The object of `colligate tree --json` for one document."""
    found = await (await server.libraries.library(name)).document(document_id)
    return await in_thread(tree_json, found)


@router.get("/{document_id}/pages/{number}", summary="One page")
async def page(name: str, document_id: str, number: int, server: TheServer) -> PageText:
    """Its place in the text, and its text."""
    found = await (await server.libraries.library(name)).document(document_id)
    return _page(found, number)


@router.delete("/{document_id}", status_code=204, summary="Remove a document")
async def remove(name: str, document_id: str, server: TheServer) -> Response:
    """Nothing of its text stays: runs that looked at it go as well."""
    library = await server.libraries.library(name)
    await library.document(document_id)  # an id, and no path
    removed = await library.remove([document_id])
    await server.jobs.tidy(name)
    await server.runs.forget_documents(name, removed)
    return Response(status_code=204)


def _listed(info: DocumentInfo) -> DocumentShape:
    return {
        "id": info.id,
        "title": info.title,
        "source": PurePath(info.source).name,  # where it lies is the server's own affair
        "characters": info.characters,
        "pages": info.pages,
        "passages": info.passages,
        "language": info.language,
    }


def _page(document: Document, number: int) -> PageText:
    for each in document.pages:
        if each.number == number:
            return {
                "number": number,
                "start": each.start,
                "end": each.end,
                "text": document.text[each.start : each.end],
            }
    there = f"it has {len(document.pages)}" if document.pages else "it has no pages"
    raise NotHere(f"no page {number} of {document.id}", there)
