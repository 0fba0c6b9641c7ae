"""Documents for tests: made of Markdown, or read from a file that is written first."""

import ctypes
import io
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pypdfium2
from hypothesis import strategies as st
from pypdfium2 import raw

from colligate.documents import Document, Kind, Span, flat_tree
from colligate.documents.markdown import markdown_tree, own_span
from colligate.documents.reading import read_file

_MARKS = ["# ", "## ", "#### ", "- ", "* ", "1. ", "12) ", "> ", "```\n", "~~~", "---", "==="]
_BLANKS = ["    ", "\t", "  ", "\n", "\n\n", "\r\n", "\r", *"\xa0\x0c\u2028\x1c\u3000"]
_WORDS = ["word ", "x" * 50, "é", "漢字。", "🙂 ", "title: x", "\\", "*", "_", "`", "\x00", "राम "]
_SENTENCES = ["A sentence. ", "It is due at once! ", "No. 3 of vol. 2, Mr. A. Bee. ", "Item 1. "]
_BLOCKS = ["|", "| a | b |\n|---|---|\n| c | d |\n", "[a]: /b", "[a](b)", "<div>", "<!--", "-->"]
MARKDOWN = st.lists(
    st.one_of(*map(st.sampled_from, (_MARKS, _BLANKS, _WORDS, _SENTENCES, _BLOCKS))), max_size=40
).map("".join)
"""Any Markdown: pieces in any order, each kind as often as the others."""


def make(
    text: str,
    title: str = "d",
    name: str = "d",
    *,
    flat: bool = False,
    language: str = "en",
    **fields: Any,
) -> Document:
    """Return the document of a Markdown text; `flat` leaves its structure out."""
    tree = flat_tree(name, len(text)) if flat else markdown_tree(text, name)
    return Document(name, title, text, tree, language=language, **fields)


def write_and_read(path: Path, content: str | bytes) -> Document:
    """Write a file and return the one document it holds."""
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    (document,) = read_file(path).documents
    return document


def outline(document: Document) -> list[tuple[int, str]]:
    """Return level and title of each section that has a heading."""
    return [(s.level, s.title) for s in document.tree.sections if not s.synthetic]


def texts_of(document: Document, kind: Kind) -> list[str]:
    """Return the texts of all nodes of a kind."""
    return [document.slice(node.span) for node in document.tree if node.kind is kind]


def block_spans(document: Document) -> list[Span]:
    """Return a tree's text again: each heading and each content node's own text, in order."""
    return [span for node in document.tree if (span := own_span(document, node)) is not None]


def squeeze(text: str) -> str:
    """Return a text without blanks."""
    return "".join(text.split())


def pack(members: Mapping[str, str | bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a zip archive of these members, as office files are."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return data.getvalue()


def make_all(texts: Mapping[str, str], **fields: Any) -> list[Document]:
    """Return a document of each text, named and titled by its key."""
    return [make(text, name, name, **fields) for name, text in texts.items()]


def text_pdf(pages: Sequence[Sequence[str]], *, turned: bool = False) -> bytes:
    """Return a PDF of lines of 12 points; a `turned` page is written upwards, and shown turned."""
    document = pypdfium2.PdfDocument.new()
    for lines in pages:
        page = document.new_page(612, 792)
        for number, line in enumerate(lines):
            words = raw.FPDFPageObj_NewTextObj(document, b"Helvetica", 12)
            raw.FPDFText_SetText(words, (ctypes.c_ushort * (len(line) + 1))(*map(ord, line)))
            down = 16 * number
            at = (0, 1, -1, 0, 72 + down, 72) if turned else (1, 0, 0, 1, 72, 720 - down)
            raw.FPDFPageObj_Transform(words, *at)
            raw.FPDFPage_InsertObject(page, words)
        page.gen_content()
        page.set_rotation(90 * turned)
    written = io.BytesIO()
    document.save(written)
    return written.getvalue()


def scanned(pages: Sequence[Sequence[str]], form: str = "PDF") -> bytes:
    """Return lines as a scanner gives them: pictures, as a PDF or in another format of Pillow."""
    drawn = [page.render(scale=3).to_pil() for page in pypdfium2.PdfDocument(text_pdf(pages))]
    written = io.BytesIO()
    more = {"save_all": True, "append_images": drawn[1:]} if len(drawn) > 1 else {}
    drawn[0].save(written, form, resolution=216.0, dpi=(216, 216), **more)
    return written.getvalue()
