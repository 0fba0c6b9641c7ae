"""The entries of a file of passages, and the documents they are.

`{"id", "title", "text"}`, FlashRAG's `{"id", "contents"}` or BEIR's `{"_id", "title", "text"}`.
Entries `NAME#p0`, `NAME#p1`, ... that follow each other are the pages of one document, NAME.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from pathlib import Path

from pydantic import AliasChoices, Field

from colligate.documents.document import Document, Page
from colligate.documents.languages import detect
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading.plain import text_tree
from colligate.evaluation.datasets.jsonl import Record, faulty
from colligate.evaluation.datasets.pages import document_of_page, page_of
from colligate.evaluation.datasets.records import Shape, Text, read_each, understood

_BETWEEN_PAGES = "\n\n"
_ENTRIES, _CHARACTERS = 5, 500  # what a language is told from; more takes longer, to no purpose


class Entry(Shape):
    """A passage, a page or a whole document. `file` is the name of the file it comes from."""

    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    title: Text = ""
    text: Text = ""
    contents: Text = ""
    file: Text = ""


def grouped(path: Path) -> Iterator[tuple[str, list[Entry]]]:
    """The entries of a file by document, in order; several where they are its pages.

    A document without any text is passed over.

    Raises:
        FaultyRecord: if an entry is wrong or cut off, or has an id that stood before; pages of
            one document must follow each other.
    """
    seen: set[str] = set()
    for id_, entries in groupby(read_each(path, _entry), lambda entry: document_of_page(entry.id)):
        held = list(entries)
        ids = {entry.id for entry in held}
        if id_ in seen or len(ids) < len(held) or (id_ in ids and len(ids) > 1):
            raise faulty(path, f"the document {id_!r}", "entries of its id stand in two places")
        seen.add(id_)
        if any(entry.text.strip() for entry in held):
            yield id_, held


def document(id_: str, entries: Sequence[Entry], language: str | None = None) -> Document:
    """The document of an entry, or of its pages. Without a language it is told from the text."""
    if language is None:
        language = detect("\n".join(entry.text for entry in entries))
    if page_of(entries[0].id) is not None:
        return _paged(id_, entries, language)
    entry = entries[0]
    file = entry.file or id_
    markdown = file.endswith(".md")
    # A passage has no headings: only a text that was a file of its own is looked at for them.
    tree = (
        markdown_tree(entry.text, id_)
        if markdown
        else text_tree(entry.text, id_, prose=file.endswith(".txt"))
    )
    media_type = "text/markdown" if markdown else "text/plain"
    title = entry.title or id_
    return Document(id_, title, entry.text, tree, media_type=media_type, language=language)


def language_of(entries: Iterable[Entry]) -> str:
    """The language that entries are in together: one passage alone is often too short to tell."""
    several = islice(entries, _ENTRIES)
    return detect("\n".join(entry.text[:_CHARACTERS] for entry in several))


def _paged(id_: str, entries: Sequence[Entry], language: str) -> Document:
    pages, start = [], 0
    for entry in entries:
        _, number = page_of(entry.id) or ("", 0)
        pages.append(Page(number + 1, start, start + len(entry.text)))
        start += len(entry.text) + len(_BETWEEN_PAGES)
    text = _BETWEEN_PAGES.join(entry.text for entry in entries)
    name = id_.rpartition(":")[2]
    return Document(id_, name, text, text_tree(text, id_), tuple(pages), language=language)


def _entry(record: Record) -> Entry:
    """FlashRAG writes the title, often in quotation marks, as the first line of the contents."""
    entry = understood(Entry, record)
    if entry.text:
        return entry
    title, newline, text = entry.contents.partition("\n")
    if not newline:  # no title; and some entries of BEIR are a title alone
        return entry.model_copy(update={"text": title or entry.title})
    title = entry.title or title.strip().removeprefix('"').removesuffix('"')
    return entry.model_copy(update={"title": title, "text": text})
