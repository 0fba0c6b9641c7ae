"""Documents that do not come with their questions: a file of passages, or a folder of documents.

A file of passages is a file of records: `{"id", "title", "text"}`, or a form that is published:
`PassageEntry` has its names. Entries `NAME#p0`, `NAME#p1`, ... that follow each other are
the pages of one document, NAME.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TypeVar

from pydantic import AliasChoices, Field

from colligate.documents.document import Document, Page
from colligate.documents.languages import detect_language
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading import Reading, find_files, read_file
from colligate.documents.reading.source import stem_of
from colligate.documents.reading.text import text_tree
from colligate.documents.tree import Tree
from colligate.errors import ColligateError, FaultyRecord, ReadingError, UnsupportedFormat
from colligate.lab.bench.datasets.records import (
    JsonObject,
    NullableText,
    RecordModel,
    parse_records,
    record_error,
    validate,
)
from colligate.lab.bench.question import Question

CORPUS_FILE = "corpus.jsonl"  # of a BEIR folder
_RECORDS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")
_FIRST = 5  # documents that the language of a file of passages is detected from
_BETWEEN_PAGES = "\n\n"
_PAGE = re.compile(r"(?P<document>.+)#p(?P<number>\d+)")

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Passages:
    """The entries of a file of passages by document."""

    path: Path
    entries: Mapping[str, Sequence[PassageEntry]]

    @classmethod
    def read(cls, path: Path) -> Passages:
        """Read a file or the folder of a BEIR data set. Blocks."""
        path = find_passages(path)
        return cls(path, dict(group_entries(path)))


def find_passages(path: Path) -> Path:
    """Return the file of passages of a BEIR folder; any other path stays."""
    return path / CORPUS_FILE if (path / CORPUS_FILE).is_file() else path


def load_documents(question: Question, passages: Passages | None = None) -> list[Document]:
    """Return the documents of a question, in their order; those without a text are looked up."""
    check_documents(question, passages)
    entries = passages.entries if passages else {}
    documents = {e: assemble_document(e, entries[e]) for e in _without_text(question)}
    own = [PassageEntry(id=c.id, title=c.title, text=c.text) for c in question.documents]
    brought = [entry for entry in own if entry.id not in documents]
    language = _detect_together(brought)
    documents |= {entry.id: assemble_document(entry.id, [entry], language) for entry in brought}
    return [documents[each.id] for each in question.documents]


def check_documents(question: Question, passages: Passages | None = None) -> None:
    """Check that each document of a question has a text, or is among the passages."""
    empty = _without_text(question)
    if missing := [e for e in empty if not passages or e not in passages.entries]:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        where = f"is not in {passages.path}" if passages else "there is no corpus"
        raise FaultyRecord(
            f"cannot ask question {question.id}",
            f"its document {missing[0]!r}{more} has no text and {where}",
            "name the corpus that holds it (of your own questions: --documents DIR)",
        )


def _without_text(question: Question) -> list[str]:
    return [each.id for each in question.documents if not each.text.strip()]


def iterate_documents(
    path: Path, report: Callable[[ColligateError], None] | None = None
) -> Iterator[Document]:
    """Yield every document of a file of passages or of a folder, in order.

    The language of a file's entries is that of its first ones. A file of a folder that cannot be
    read is passed to `report`; without `report` its error is raised.
    """
    path = find_passages(path)
    if not path.is_dir():
        groups = group_entries(path)
        first = list(islice(groups, _FIRST))
        language = _detect_together(entry for _, entries in first for entry in entries)
        for id_, entries in chain(first, groups):
            yield assemble_document(id_, entries, language)
        return
    for file in find_files([path], follow_links=True).files:
        try:
            found = read_corpus_file(file).documents
        except ReadingError as error:
            if report is None:
                raise
            report(error)
        else:
            yield from found


def read_corpus_file(path: Path) -> Reading:
    """Read a file of a corpus for a library: its passages, or its one document."""
    if path.name.endswith(_RECORDS):
        return Reading(tuple(iterate_documents(path)))
    found, *others = read_file(path).documents
    if others:
        raise UnsupportedFormat(
            f"cannot read {path} as one document",
            f"it holds {len(others) + 1} of them",
            "name it as the corpus",
        )
    tree = Tree.from_json(found.tree.to_json(), path.name)
    named = dataclasses.replace(found, id=path.name, tree=tree)
    return Reading((named,), named.warnings)


def name_files(folder: Path, files: Iterable[tuple[Path, T]]) -> Mapping[str, Sequence[T]]:
    """Return what each file is given with, by every name that a question may use for the file.

    These are its path below the folder, its file name, and both without the ending; a path goes
    before the shorter names. A name of several files has all of theirs.
    """
    paths: defaultdict[str, list[T]] = defaultdict(list)
    shorter: defaultdict[str, list[T]] = defaultdict(list)
    for file, what in files:
        below = file.relative_to(folder) if file.is_relative_to(folder) else Path(file.name)
        paths[below.as_posix()].append(what)
        for name in {file.name, stem_of(file), below.with_name(stem_of(file)).as_posix()}:
            shorter[name].append(what)
    return {**shorter, **paths}


class PassageEntry(RecordModel):
    """A passage, a page or a whole document. `file` is the name of the file it comes from."""

    id: str = Field(validation_alias=AliasChoices("_id", "id", "corpus_name", "url"))
    title: NullableText = ""
    text: NullableText = Field(
        "", validation_alias=AliasChoices("text", "body", "content", "context")
    )
    contents: NullableText = ""
    source: NullableText = ""
    published_at: NullableText = ""
    file: NullableText = ""


def group_entries(path: Path) -> Iterator[tuple[str, list[PassageEntry]]]:
    """Yield the entries of a file by document, its pages together; empty documents are left out."""
    seen: set[str] = set()
    entries = parse_records(path, _parse_entry)
    for id_, group in groupby(entries, lambda entry: strip_page(entry.id)):
        held = list(group)
        ids = {entry.id for entry in held}
        if id_ in seen or len(ids) < len(held) or (id_ in ids and len(ids) > 1):
            raise record_error(path, f"the document {id_!r}", "entries of its id are in two places")
        seen.add(id_)
        if any(entry.text.strip() for entry in held):
            yield id_, held


def _parse_entry(record: JsonObject) -> PassageEntry:
    """FlashRAG's first line is a title; MultiHop-RAG's titles get source and date, as it asks."""
    entry = validate(PassageEntry, record)
    if entry.published_at:
        title = f"{entry.title} ({', '.join(filter(None, (entry.source, entry.published_at)))})"
        entry = entry.model_copy(update={"title": title})
    if entry.text:
        return entry
    title, newline, text = entry.contents.partition("\n")
    if not newline:  # no title; and some entries of BEIR are a title alone
        return entry.model_copy(update={"text": title or entry.title})
    title = entry.title or title.strip().removeprefix('"').removesuffix('"')
    return entry.model_copy(update={"title": title, "text": text})


def assemble_document(
    id_: str, entries: Sequence[PassageEntry], language: str | None = None
) -> Document:
    """Return the document of an entry, or of its pages; without a language its own is detected."""
    if language is None:
        language = detect_language("\n".join(entry.text for entry in entries))
    if _PAGE.fullmatch(entries[0].id):
        return _join_pages(id_, entries, language)
    entry = entries[0]
    file = entry.file or id_
    if file.endswith(".md"):
        tree, media_type = markdown_tree(entry.text, id_), "text/markdown"
    else:
        # A passage has no headings: only a text that was a file of its own can have some.
        tree, media_type = text_tree(entry.text, id_, prose=file.endswith(".txt")), "text/plain"
    title = entry.title or id_
    return Document(id_, title, entry.text, tree, media_type=media_type, language=language)


def _join_pages(id_: str, entries: Sequence[PassageEntry], language: str) -> Document:
    pages, start = [], 0
    for entry in entries:
        number = int(entry.id.rpartition("#p")[2])  # from 0
        pages.append(Page(number + 1, start, start + len(entry.text)))
        start += len(entry.text) + len(_BETWEEN_PAGES)
    text = _BETWEEN_PAGES.join(entry.text for entry in entries)
    title = id_.rpartition(":")[2]
    return Document(id_, title, text, text_tree(text, id_), tuple(pages), language=language)


def strip_page(id_: str) -> str:
    """Return the document of an entry: of a page the one it belongs to, otherwise the entry itself.

    >>> strip_page("AMCOR_2023Q2_10Q#p12")
    'AMCOR_2023Q2_10Q'
    """
    page = _PAGE.fullmatch(id_)
    return id_ if page is None else page["document"]


def _detect_together(entries: Iterable[PassageEntry]) -> str:
    """Return the language of entries together: one passage alone is often too short to tell."""
    # More than 500 characters of each take longer and change nothing.
    return detect_language("\n".join(entry.text[:500] for entry in islice(entries, _FIRST)))
