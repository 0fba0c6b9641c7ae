"""Places in documents for other programs: sections by heading, spans, and how to point at them."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from colligate.documents import Document, Span
from colligate.documents.tree import Kind, Node
from colligate.errors import UsageError
from colligate.serving.answering import DEFAULT_LIBRARY

_MOST_NAMED = 5


def uri(span: Span, library: str = DEFAULT_LIBRARY) -> str:
    """The resource that is a span's text: `doc://ID#START-END`, or `doc://LIBRARY/ID#...`.

    >>> uri(Span("lease-1f", 10, 25))
    'doc://lease-1f#10-25'
    """
    where = "" if library == DEFAULT_LIBRARY else quote(library, safe="") + "/"
    return f"doc://{where}{quote(span.document_id, safe='')}#{span.start}-{span.end}"


def section_at(document: Document, headings: Sequence[str]) -> Node:
    """The section under a heading path, or under the last headings of one; case does not matter.

    Raises:
        UsageError: there is none, or there are several.
    """
    wanted = [_folded(heading) for heading in headings]
    found = [
        node
        for node in document.tree.sections
        if not node.synthetic and _path(document, node)[-len(wanted) :] == wanted
    ]
    exact = [node for node in found if len(_path(document, node)) == len(wanted)]
    if len(exact or found) == 1:
        return (exact or found)[0]
    asked = " > ".join(headings)
    if not found:
        raise UsageError(
            f"{document.id} has no section {asked!r}",
            mend="read the document without a section to see its headings",
        )
    places = ", ".join(f"{node.span.start}-{node.span.end}" for node in found[:_MOST_NAMED])
    more = ", ..." if len(found) > _MOST_NAMED else ""
    raise UsageError(
        f"{document.id} has {len(found)} sections {asked!r}",
        f"at {places}{more}",
        "give the start of the one that is meant, or more of its heading path",
    )


def sections_in(document: Document, node: Node) -> list[Node]:
    """The sections directly under a node, those without a heading left out."""
    return [
        child
        for child in document.tree.children(node)
        if child.kind is Kind.SECTION and not child.synthetic
    ]


def _path(document: Document, node: Node) -> list[str]:
    around = [each for each in document.tree.ancestors(node) if each.kind is Kind.SECTION]
    titles = [each.title for each in reversed(around) if not each.synthetic]
    return [_folded(title) for title in [*titles, node.title]]


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()
