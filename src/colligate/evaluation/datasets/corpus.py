"""Corpora: where the text of documents is that do not come with their questions.

A corpus is a file of passages (`entries`), a BEIR folder, or a folder of whole documents. In a
folder a document's id is the name of its file.
"""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable, Collection, Iterator
from itertools import chain, islice
from pathlib import Path

from colligate.documents.document import Document
from colligate.documents.reading import Reading
from colligate.errors import ColligateError, FaultyRecord, MissingPath, ReadingError
from colligate.evaluation.datasets import beir, folder
from colligate.evaluation.datasets.entries import Entry, document, grouped, language_of
from colligate.evaluation.datasets.spool import Spool
from colligate.evaluation.question import Question

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
        self._folder = folder.Folder(path) if self.path.is_dir() else None
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
                self._spool.put(id_, pickle.dumps(folder.document(file, id_)))
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
    found = folder.document(path, path.name)
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
