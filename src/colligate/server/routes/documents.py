"""Documents: their text, pages and trees."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from colligate.concurrency import in_thread
from colligate.documents.document import Document, Page, tree_json
from colligate.documents.reading.formats import PDF, PICTURES
from colligate.documents.reading.pdf.picture import Box, draw_page, find_boxes
from colligate.library.sources import DocumentInfo
from colligate.server.errors import NotHere
from colligate.server.shapes import DocumentShape, DocumentText
from colligate.server.state import ServerState, State

_MAX_CHARACTERS = 200_000  # of text in one response
_DRAWN = {form.media_type for form in (PDF, *PICTURES.values())}
_KEPT = "private, max-age=600"  # a browser keeps a picture while its reader turns pages

router = APIRouter(prefix="/api/libraries/{name}/documents", tags=["documents"])


@router.get("", summary="List the documents", response_model=list[DocumentShape])
async def list_library_documents(name: str, server: State) -> Sequence[DocumentInfo]:
    """List all documents in the order they were added, without their texts."""
    return await (await server.libraries.open_library(name)).documents()


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
        "media_type": document.media_type,
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


@router.get(
    "/{document_id}/pages/{number}/picture",
    summary="One page of a PDF, or of a picture, as a picture",
    response_class=Response,
    responses={200: {"content": {"image/webp": {}}}},
)
async def send_picture(
    name: str,
    document_id: str,
    number: int,
    server: State,
    width: Annotated[int, Query(ge=100, le=2400)] = 1200,
) -> Response:
    """Return the page as WebP, `width` pixels wide; 404 if the file is gone or has changed."""
    document, _ = await _find_page(name, document_id, number, server)
    drawn = await server.view_file(name, document, partial(draw_page, number=number, width=width))
    return Response(drawn, media_type="image/webp", headers={"Cache-Control": _KEPT})


@router.get("/{document_id}/pages/{number}/boxes", summary="Where a range of the text is on a page")
async def read_boxes(
    name: str,
    document_id: str,
    number: int,
    server: State,
    start: Annotated[int, Query(ge=0, le=1 << 53)],
    end: Annotated[int, Query(ge=0, le=1 << 53)],
) -> list[Box]:
    """Return a rectangle for each line of the range that is found on the page.

    Each has its left, top, right and bottom, in shares of the page's width and height.
    """
    document, page = await _find_page(name, document_id, number, server)
    start, end = max(start, page.start), min(end, page.end)
    if start >= end:
        return []
    quote, share = document.text[start:end], (start - page.start) / (page.end - page.start)
    languages = document.metadata.get("ocr", "")
    find = partial(find_boxes, number=number, quote=quote, share=share, languages=languages)
    boxes: list[Box] = await server.view_file(name, document, find)
    return boxes


async def _find_page(
    name: str, document_id: str, number: int, server: ServerState
) -> tuple[Document, Page]:
    """Return a document that is a PDF or a picture, and its page."""
    document = await (await server.libraries.open_library(name)).document(document_id)
    page = next((page for page in document.pages if page.number == number), None)
    if page is None:
        why = f"it has {len(document.pages)}" if document.pages else "it has no pages"
        raise NotHere(f"no page {number} of {document.id}", why)
    if document.media_type not in _DRAWN:
        raise NotHere(f"no picture of {document.id}", "only PDFs and pictures have one")
    return document, page


@router.delete("/{document_id}", status_code=204, summary="Remove a document")
async def remove_document(name: str, document_id: str, server: State) -> Response:
    """Remove a document and all of its text: runs that looked at it are deleted too."""
    library = await server.libraries.open_library(name)
    await library.document(document_id)  # `remove` would take a path as well
    removed = await library.remove([document_id])
    await server.runs.forget_documents(name, removed)
    return Response(status_code=204)
