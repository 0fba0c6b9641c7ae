"""Corpora: where the text of documents is that do not come with their questions.

A corpus is a file of passages (`entries`), a BEIR folder, or a folder of whole documents. In a
folder a document's id is the name of its file.
"""

from __future__ import annotations

import dataclasses
import json
import pickle
import re
import tempfile
import threading
import weakref
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, groupby, islice
from pathlib import Path
from typing import TypeVar

from pydantic import AliasChoices, Field

from colligate.bench.datasets import beir
from colligate.bench.datasets.reading import Record, Shape, Text, faulty, read_each, understood
from colligate.bench.question import Question
from colligate.documents.document import Document, Page
from colligate.documents.languages import detect_language
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading import Reading, find_files, read_file
from colligate.documents.reading.source import stem_of
from colligate.documents.reading.text import text_tree
from colligate.documents.tree import Tree
from colligate.errors import (
    ColligateError,
    FaultyRecord,
    MissingPath,
    ReadingError,
    UnsupportedFormat,
    UsageError,
)

# Documents that a corpus holds page by page: `NAME#p0`, `NAME#p1`, ..., counted from 0.

_PAGE = re.compile(r"(?P<document>.+)#p(?P<number>\d+)")


def page_of(id_: str) -> tuple[str, int] | None:
    """The document and the number, from 0, of an entry that is a page.

    >>> page_of("AMCOR_2023Q2_10Q#p12")
    ('AMCOR_2023Q2_10Q', 12)
    """
    found = _PAGE.fullmatch(id_)
    return None if found is None else (found["document"], int(found["number"]))


def document_of_page(id_: str) -> str:
    """The document of an entry: of a page the one it is of, else the entry itself."""
    page = page_of(id_)
    return id_ if page is None else page[0]


# The entries of a file of passages, and the documents they are.
#
# `{"id", "title", "text"}`, FlashRAG's `{"id", "contents"}` or BEIR's `{"_id", "title", "text"}`.
# Entries `NAME#p0`, `NAME#p1`, ... that follow each other are the pages of one document, NAME.

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
        language = detect_language("\n".join(entry.text for entry in entries))
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
    return detect_language("\n".join(entry.text[:_CHARACTERS] for entry in several))


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


# A folder of whole documents as a corpus, in any format that colligate reads.

T = TypeVar("T")


def called(folder: Path, files: Iterable[tuple[Path, T]]) -> Mapping[str, Sequence[T]]:
    """What stands for each file, by what a question may call it.

    That is its path below the folder; its name, and either without the ending, where no path is
    so. A name of several files has what stands for each.
    """
    paths: defaultdict[str, list[T]] = defaultdict(list)
    shorter: defaultdict[str, list[T]] = defaultdict(list)
    for file, what in files:
        below = file.relative_to(folder) if file.is_relative_to(folder) else Path(file.name)
        paths[below.as_posix()].append(what)
        for name in {file.name, stem_of(file), below.with_name(stem_of(file)).as_posix()}:
            shorter[name].append(what)
    return {**shorter, **paths}


class Folder:
    """The files of a folder, in the order of their paths, by the names a question may give them."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def files(self) -> tuple[Path, ...]:
        """The files that can be read."""
        return find_files([self.path]).files

    def named(self, name: str) -> Path | None:
        """The file of that path below the folder, or of that name, with or without its ending.

        Raises:
            UsageError: if several are called so.
        """
        fitting = self._called.get(name, ())
        if len(fitting) > 1:
            both = " and ".join(file.relative_to(self.path).as_posix() for file in fitting[:2])
            raise UsageError(
                f"cannot tell which file of {self.path} {name!r} is",
                f"{both} are called so",
                "name it with its folder",
            )
        return fitting[0] if fitting else None

    @cached_property
    def _called(self) -> Mapping[str, Sequence[Path]]:
        return called(self.path, ((file, file) for file in self.files))


def folder_document(file: Path, id_: str) -> Document:
    """The document of a file under an id of our choice.

    Raises:
        ReadingError: if it cannot be read.
    """
    found, *others = read_file(file).documents
    if others:
        raise UnsupportedFormat(
            f"cannot read {file} as one document",
            f"it holds {len(others) + 1} of them",
            "name it as the corpus",
        )
    return dataclasses.replace(found, id=id_, tree=Tree.from_json(found.tree.to_json(), id_))


# Texts kept on disk by name while a process needs them.


class Spool:
    """Bytes by name in a nameless temporary file, which goes with the object. Thread-safe."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the object)
        weakref.finalize(self, self._file.close)
        self._places: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def __contains__(self, name: str) -> bool:
        return name in self._places

    def put(self, name: str, data: bytes) -> None:
        """Keep the bytes under a name; what was there before is out of reach."""
        with self._lock:
            start = self._file.seek(0, 2)
            self._file.write(data)
            self._places[name] = (start, len(data))

    def get(self, name: str) -> bytes:
        """The bytes of a name that is there."""
        with self._lock:
            start, length = self._places[name]
            self._file.seek(start)
            return self._file.read(length)


_FIRST = 5  # documents that the language of a file of passages is told from
_RECORDS = (".jsonl", ".jsonl.gz", ".ndjson", ".ndjson.gz")


class Corpus:
    """A file of passages, a BEIR folder or a folder of whole documents. Thread-safe.

    Raises:
        MissingPath: if there is no such file or folder.
    """

    def __init__(self, path: Path) -> None:
        if not path.exists():
            raise MissingPath(f"cannot read {path}", "there is no such corpus", "check the path")
        self.path = path / beir.CORPUS if (path / beir.CORPUS).is_file() else path
        self._folder = Folder(path) if self.path.is_dir() else None
        self._spool: Spool | None = None
        self._lock = threading.Lock()

    def passages(
        self, report: Callable[[ColligateError], None] | None = None
    ) -> Iterator[Document]:
        """All documents in order, one at a time.

        The language of a file's entries is that of its first ones. Of a folder's files those
        that cannot be read are given to `report`; without it the first of them is raised.

        Raises:
            FaultyRecord: if an entry is wrong or cut off.
            ReadingError: if a file of a folder cannot be read.
        """
        if self._folder is None:
            yield from _documents(self.path)
            return
        for file in self._folder.files:
            try:
                found = reading(file).documents
            except ReadingError as error:
                if report is None:
                    raise
                report(error)
            else:
                yield from found

    def texts(self, ids: Collection[str]) -> dict[str, Document]:
        """The documents with these ids, in the order asked for; those it lacks are missing.

        In a folder an id is a file's path below it, or its name, with or without the ending. What
        was looked up before is not read again: texts are kept in a temporary file, not in memory.

        Raises:
            FaultyRecord: if an entry of the corpus is wrong or cut off.
            ReadingError: if a file asked for cannot be read.
            UsageError: if several files of the folder are called so.
        """
        look_up = self._from_file if self._folder is None else self._from_folder
        found = ((id_, look_up(id_)) for id_ in dict.fromkeys(ids))
        return {id_: each for id_, each in found if each is not None}

    def lacking(self, ids: Collection[str]) -> list[str]:
        """Those of the ids that no document has; nothing is made of the others.

        Raises:
            FaultyRecord, UsageError: as `texts`.
        """
        if self._folder is None:
            spool = self._spool_of_file()
            return [id_ for id_ in ids if id_ not in spool]
        return [id_ for id_ in ids if self._folder.named(id_) is None]

    def _spool_of_file(self) -> Spool:
        with self._lock:
            if self._spool is None:
                self._spool = _spooled(self.path)
            return self._spool

    def _from_file(self, id_: str) -> Document | None:
        spool = self._spool_of_file()
        if id_ not in spool:
            return None
        entries = [Entry.model_validate(entry) for entry in json.loads(spool.get(id_))]
        return document(id_, entries)

    def _from_folder(self, id_: str) -> Document | None:
        assert self._folder is not None
        with self._lock:
            if self._spool is None:
                self._spool = Spool()
            if id_ not in self._spool:
                if (file := self._folder.named(id_)) is None:
                    return None
                self._spool.put(id_, pickle.dumps(folder_document(file, id_)))
        kept: Document = pickle.loads(self._spool.get(id_))
        return kept


def documents_of(question: Question, corpus: Corpus | None = None) -> list[Document]:
    """The documents that come with a question, in their order; those without a text looked up.

    Raises:
        FaultyRecord: if one without a text is not in the corpus.
    """
    hold_to(question, corpus)
    empty = _without_text(question)
    documents = corpus.texts(empty) if corpus and empty else {}
    own = [Entry(id=c.id, title=c.title, text=c.text) for c in question.documents]
    brought = [entry for entry in own if entry.id not in documents]
    language = language_of(brought)
    documents |= {entry.id: document(entry.id, [entry], language) for entry in brought}
    return [documents[each.id] for each in question.documents]


def hold_to(question: Question, corpus: Corpus | None = None) -> None:
    """See to it that each document of a question has a text, or the corpus holds it.

    Raises:
        FaultyRecord: if one has none, and is not in the corpus.
    """
    empty = _without_text(question)
    if missing := corpus.lacking(empty) if corpus and empty else empty:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise FaultyRecord(
            f"cannot ask question {question.id}",
            f"its document {missing[0]!r}{more} has no text and "
            + (f"is not in {corpus.path}" if corpus else "there is no corpus"),
            "name the corpus that holds it (of your own questions: --documents DIR)",
        )


def _without_text(question: Question) -> list[str]:
    return [each.id for each in question.documents if not each.text.strip()]


def reading(path: Path) -> Reading:
    """What a file of a corpus holds, for a library to take in: its passages, or its document.

    Raises:
        FaultyRecord: if an entry is wrong or cut off.
        ReadingError: if it is a document that cannot be read.
    """
    if path.name.endswith(_RECORDS):
        return Reading(tuple(_documents(path)))
    found = folder_document(path, path.name)
    return Reading((found,), found.warnings)


def _documents(path: Path) -> Iterator[Document]:
    groups = grouped(path)
    first = list(islice(groups, _FIRST))
    language = language_of(entry for _, entries in first for entry in entries)
    for id_, entries in chain(first, groups):
        yield document(id_, entries, language)


def _spooled(path: Path) -> Spool:
    spool = Spool()
    for id_, entries in grouped(path):
        fields = {"id", "title", "text", "file"}
        kept = [entry.model_dump(include=fields) for entry in entries]
        spool.put(id_, json.dumps(kept).encode())
    return spool
