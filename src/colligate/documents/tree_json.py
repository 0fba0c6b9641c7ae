"""A document's structure tree as JSON."""

from __future__ import annotations

from typing import Any

from colligate.documents.document import Document
from colligate.documents.tree import Node


def tree_json(document: Document) -> dict[str, Any]:
    """A document's tree for programs; spans count code points of its text."""
    structure = document.tree.structure
    return {
        "document": document.id,
        "title": document.title,
        "characters": len(document),
        "pages": len(document.pages),
        "language": document.language,
        "structure": {
            "confidence": structure.confidence,
            "basis": structure.basis.value,
            "note": structure.note,
        },
        "nodes": [
            {
                "id": node.id,
                "kind": node.kind.value,
                "level": node.level,
                "title": node.title,
                "start": node.span.start,
                "end": node.span.end,
                "page": page_number(document, node),
                "parent": node.parent,
                "children": list(node.children),
            }
            for node in document.tree
        ],
    }


def page_number(document: Document, node: Node) -> int | None:
    """The page that a node begins on; None for a document without pages."""
    page = document.page_of(node.span)
    return None if page is None else page.number
