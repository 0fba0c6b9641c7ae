from colligate.documents import Document
from colligate.documents.chunking import Structural
from colligate.documents.markdown import markdown_tree
from colligate.library.index import cut_passages

TEXT = """# Licence

## 3. Responsibilities

### 3.1. Source form

All distribution is under these terms.

### 3.2. Reserved

## 4. Notices
"""


def test_a_bare_heading_above_sub_sections_is_not_searched_for_itself():
    document = Document("a", "Licence", TEXT, markdown_tree(TEXT, "a"))
    found = [document.slice(span) for span in cut_passages(document, Structural())]
    assert found == [
        "### 3.1. Source form\n\nAll distribution is under these terms.",
        "### 3.2. Reserved",
        "## 4. Notices",
    ]
