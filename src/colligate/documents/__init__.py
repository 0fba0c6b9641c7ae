"""Documents: texts with spans and trees; reading files, sentences, chunks, locating quotes.

The parts of a document are exported here. What works on documents is imported from its own
module, so that no parser is loaded before it is needed: `reading` (`read_file`, `find_files`),
`markdown`, `sentences`, `chunking`, `locating` (`locate`), `languages`.
"""

from colligate.documents.document import Document, Hit, Page, Passage, clean_text
from colligate.documents.span import Span
from colligate.documents.tree import Basis, Kind, Node, Structure, Tree, TreeBuilder, flat_tree

__all__ = ["Basis", "Document", "Hit", "Kind", "Node", "Page", "Passage", "Span", "Structure"]
__all__ += ["Tree", "TreeBuilder", "clean_text", "flat_tree"]
