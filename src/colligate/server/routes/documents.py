"""Documents: their text, pages and trees."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from colligate.concurrency import in_thread
from colligate.documents.document import tree_json
from colligate.server.errors import NotHere
from colligate.server.shapes import DocumentShape, DocumentText, PageText, describe_document
from colligate.server.state import State

_MAX_CHARACTERS = 200_000  # of text in one response

router = APIRouter(prefix="/api/libraries/{name}/documents", tags=["documents"])


@router.get("", summary="List the documents")
async def list_library_documents(name: str, server: State) -> list[DocumentShape]:
    """List all documents in the order they were added, without their texts."""
    infos = await (await server.libraries.open_library(name)).documents()
    return [describe_document(info) for info in infos]


@router.get("/{document_id}", summary="A document's text, or a range of it")
async def read_document(
    name: str,
    document_id: str,
    server: State,
    start: Annotated[int, Query(ge=0, le=1 << 53)] = 0,
    end: Annotated[int | None, Query(ge=0, le=1 << 53)] = None,
) -> DocumentText:
    """Return at most 200,000 characters; `end` in the response is where they stop."""
    document = await (await server.libraries.open_library(name)).document(document_id)
    start = min(start, len(document))
    last = len(document) if end is None else min(max(end, start), len(document))
    last = min(last, start + _MAX_CHARACTERS)
    return {
        "id": document.id,
        "title": document.title,
        "characters": len(document),
        "language": document.language,
        "pages": [
            {"number": page.number, "start": page.start, "end": page.end} for page in document.pages
        ],
        "text": document.text[start:last],
        "start": start,
        "end": last,
    }


@router.get("/{document_id}/tree", summary="A document's structure tree")
async def read_tree(name: str, document_id: str, server: State) -> dict[str, Any]:
    """Return the object of `colligate tree --json` for one document."""
    document = await (await server.libraries.open_library(name)).document(document_id)
    return await in_thread(tree_json, document)


@router.get("/{document_id}/pages/{number}", summary="One page")
async def read_page(name: str, document_id: str, number: int, server: State) -> PageText:
    """Return the page's place in the text, and its text."""
    document = await (await server.libraries.open_library(name)).document(document_id)
    for page in document.pages:
        if page.number == number:
            text = document.text[page.start : page.end]
            return {"number": number, "start": page.start, "end": page.end, "text": text}
    why = f"it has {len(document.pages)}" if document.pages else "it has no pages"
    raise NotHere(f"no page {number} of {document.id}", why)


@router.delete("/{document_id}", status_code=204, summary="Remove a document")
async def remove_document(name: str, document_id: str, server: State) -> Response:
    """Remove a document and all of its text: runs that looked at it are deleted too."""
    library = await server.libraries.open_library(name)
    await library.document(document_id)  # `remove` would take a path as well
    removed = await library.remove([document_id])
    await server.jobs.tidy(name)
    await server.runs.forget_documents(name, removed)
    return Response(status_code=204)
