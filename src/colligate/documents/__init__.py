"""What a document is: spans, trees, reading files, sentences, chunks, locating.

What a document is made of is here. What is done with one stands in the module of its name, so
that nobody waits for parsers he does not use: `reading` (`read`, `find_files`), `markdown`,
`sentences`, `chunking`, `locating` (`locate`), `languages`.
"""

from colligate.documents.document import Document, Hit, Page, Passage
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
