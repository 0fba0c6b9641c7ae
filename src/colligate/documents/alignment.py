"""From a chunk to the nodes of the tree it stands in."""

from __future__ import annotations

from colligate.documents.span import Span
from colligate.documents.tree import Kind, Node, Tree
from colligate.errors import SpanError


def nodes_over(tree: Tree, span: Span) -> tuple[Node, ...]:
    """The nodes a span is mapped to: all from the first content it touches to the last.

    They are in pre-order, the headings in between included. Content is touched where its own
    text is, not that of its children. A span that touches none, such as a bare heading, is
    mapped to the innermost section around it, or to the root.

    Raises:
        SpanError: if the span is of another document, or begins beyond its end.
    """
    if span.document_id != tree.root.span.document_id:
        raise SpanError(
            f"no span of {span.document_id} is mapped here",
            f"this is the tree of {tree.root.span.document_id}",
        )
    touched = [node.id for node in tree if _touches(tree, node, span)]
    if touched:
        return tree.nodes[touched[0] : touched[-1] + 1]
    node = tree.node_at(span.start)
    while node.parent is not None and node.kind is not Kind.SECTION:
        node = tree.nodes[node.parent]
    return (node,)


def _touches(tree: Tree, node: Node, span: Span) -> bool:
    if node.kind in (Kind.ROOT, Kind.SECTION):
        return False
    end = tree.nodes[node.children[0]].span.start if node.children else node.span.end
    return node.span.start < span.end and span.start < end
