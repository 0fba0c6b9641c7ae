"""What a document is: spans, trees, reading files, sentences, chunks, locating."""

from colligate.documents.document import Document, Page
from colligate.documents.passage import Hit, Passage
from colligate.documents.span import Span
from colligate.documents.tree import Basis, Kind, Node, Structure, Tree, TreeBuilder, flat_tree

__all__ = [
    "Basis",
    "Document",
    "Hit",
    "Kind",
    "Node",
    "Page",
    "Passage",
    "Span",
    "Structure",
    "Tree",
    "TreeBuilder",
    "flat_tree",
]
