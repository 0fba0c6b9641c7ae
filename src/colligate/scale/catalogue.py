"""A library's documents, files and facts in one Lance table."""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cachetools import LRUCache

from colligate.documents import Document, Span, clean_text
from colligate.documents.document import digest
from colligate.errors import (
    LibraryLocked,
)
from colligate.library.catalogue import as_json, is_lost, renamed, structure_json, to_document
from colligate.library.protocols import (
    FileRecord,
    ReadFile,
    StoredPassage,
    StoredText,
)
from colligate.library.schema import DocumentState
from colligate.library.sources import DocumentInfo
from colligate.scale.tables import CATALOGUE, NUMBER, TRIES, Table, TablesPlace, any_of, pa

T = TypeVar("T")


# Numbers go up in steps, so that the passages of a document come between it and the next one.
_STEP = 1 << 20

# Rows that are not documents have a state of their own. One that is gone is deleted later.
_CLOCK, _FILE, _FACT, _GONE = 10, 11, 12, 13

_ROWS = pa.schema(
    [
        NUMBER,
        pa.field("state", pa.int8()),
        pa.field("record", pa.string()),
        *(pa.field(name, pa.large_string()) for name in ("passages", "pages", "tree", "text")),
    ]
)
_EMPTY = {"passages": "", "pages": "", "tree": "", "text": ""}
_LONG = tuple(_EMPTY)


@dataclass(frozen=True, slots=True)
class _Row:
    """A row without its long columns, which stay on disk."""

    number: int
    state: int
    record: dict[str, Any]

    @property
    def is_present(self) -> bool:
        return self.state in (DocumentState.PENDING, DocumentState.INDEXED)


class LanceCatalogue:
    """Documents, files and facts in one table; what lists need is kept in memory."""

    in_memory = False

    def __init__(self, table: Table, *, read_only: bool) -> None:
        self.table = table
        self.read_only = read_only
        self._lock = threading.RLock()
        self._version = 0  # 0: read everything again
        self._rows: dict[int, _Row] = {}
        self._ids: dict[str, int] = {}
        self._files: dict[str, int] = {}
        self._facts: dict[str, int] = {}
        self._staged: dict[int, dict[str, Any]] | None = None  # None: no change is being made
        self._passages: LRUCache[int, list[StoredPassage]] = LRUCache(1000)

    @classmethod
    def make(cls, place: TablesPlace) -> LanceCatalogue:
        """Make an empty catalogue."""
        clock = {"number": 0, "state": _CLOCK, "record": '{"next": 1}', **_EMPTY}
        return cls(place.make(CATALOGUE, _to_table([clock])), read_only=False)

    def pin(self) -> LanceCatalogue:
        """Return the catalogue as it is now; the rows in memory are copied, not read again."""
        with self._lock:
            table = self.table.pin()
            pinned = LanceCatalogue(table, read_only=True)
            if self._version == table.refresh():
                for name in ("_version", "_rows", "_ids", "_files", "_facts"):
                    setattr(pinned, name, copy.copy(getattr(self, name)))
            return pinned

    def is_at(self, other: LanceCatalogue) -> bool:
        """Return whether both see the same version of the table."""
        return self.table.refresh() == other.table.refresh(again=True)

    # Documents and passages

    def infos(self) -> list[DocumentInfo]:
        shown = ("id", "title", "source", "characters", "pages", "passages", "language")
        rows = (row.record for row in self._read_rows() if row.is_present)
        return [
            DocumentInfo(**{name: of[name] for name in shown}, metadata=json.loads(of["metadata"]))
            for of in rows
        ]

    def numbers(self, ids: Iterable[str] | None = None) -> dict[str, int]:
        with self._lock:
            self._refresh()
            if ids is None:
                return dict(sorted(self._ids.items(), key=lambda item: item[1]))
            return {id_: self._ids[id_] for id_ in ids if id_ in self._ids}

    def ids(self, numbers: Sequence[int]) -> list[str]:
        return [row.record["id"] for row in self._find(numbers)]

    def in_state(self, state: DocumentState) -> list[int]:
        return [row.number for row in self._read_rows() if row.state == state]

    def is_searchable(self) -> bool:
        return any(
            row.state == DocumentState.INDEXED and row.record["passages"]
            for row in self._read_rows()
        )

    def languages(self) -> list[str]:
        rows = self._read_rows()
        return list({row.record["language"] for row in rows if row.state == DocumentState.INDEXED})

    def document(self, number: int) -> Document | None:
        for row in self._find([number]):
            if found := self._read_long(number):
                of = row.record
                about = (of["source"], of["media_type"], of["language"])
                told = (of["metadata"], of["warnings"])
                long = (found["text"], found["tree"], found["pages"])
                return to_document((of["id"], of["title"], *long, *about, *told))
        return None

    def text(self, number: int) -> StoredText | None:
        for row in self._find([number]):
            if found := self._read_long(number, ["text"]):
                of = row.record
                date = json.loads(of["metadata"]).get("date", "")
                about = (of["id"], of["title"], of["language"], of["source"])
                return StoredText(*about, date, found["text"], of["media_type"])
        return None

    def digest(self, number: int) -> str:
        return next((row.record["digest"] for row in self._find([number])), "")

    def passages(self, numbers: Sequence[int]) -> dict[int, StoredPassage]:
        owners = dict.fromkeys(number - number % _STEP for number in numbers)
        indexed = [row for row in self._find(owners) if row.state == DocumentState.INDEXED]
        known = {p.number: p for row in indexed for p in self.passages_of(row.number)}
        return {number: known[number] for number in numbers if number in known}

    def passages_of(self, document: int) -> list[StoredPassage]:
        with self._lock:
            if document in self._passages:
                return self._passages[document]
        found = self._read_long(document, ["passages"])
        if not found or not found["passages"]:
            return []
        listed = [
            StoredPassage(document + place, document, start, end, page, tuple(section))
            for place, (start, end, page, section) in enumerate(json.loads(found["passages"]), 1)
        ]
        with self._lock:
            self._passages[document] = listed
        return listed

    def passage_numbers(self, state: DocumentState) -> dict[int, int]:
        rows = [row for row in self._read_rows() if row.state == state]
        return {
            row.number + place: row.number
            for row in rows
            for place in range(1, row.record["passages"] + 1)
        }

    # Files

    def file(self, path: Path) -> FileRecord | None:
        row = self._find_file(path)
        return _to_file(row) if row else None

    def files(self) -> list[Path]:
        with self._lock:
            self._refresh()
            return [Path(path) for path in sorted(self._files, key=os.fsencode)]

    def files_of(self, document: int) -> list[FileRecord]:
        return [_to_file(row) for row in self._list_files() if document in row.record["documents"]]

    def documents_of(self, path: Path) -> list[str]:
        row = self._find_file(path)
        return self.ids(row.record["documents"]) if row else []

    def copies_of(self, path: Path) -> list[set[Path]]:
        row = self._find_file(path)
        return [
            {Path(each.record["path"]) for each in self._list_files() if number in _linked([each])}
            for number in dict.fromkeys(row.record["documents"] if row else ())
        ]

    def sources_only_of(self, numbers: Sequence[int]) -> list[str]:
        others = {row.record["source"] for row in self._read_rows() if row.is_present}
        return sorted({row.record["source"] for row in self._find(numbers)} - others)

    # Changes, each in one commit

    def note_file(self, file: FileRecord) -> None:
        self._change(lambda: self._put_file(file))

    def store(self, files: Sequence[ReadFile]) -> list[int]:
        def change() -> list[int]:
            stored: list[int] = []
            for file, documents in files:
                before = set(self._linked_to(file.path))
                self._put_file(file, [])
                kept = {self._keep(document) for document, _ in documents}
                self._remove_unlinked(before - kept)
                self._name_other_source(before - kept)
                numbers = [
                    self._keep(document) or self._add(document, spans)
                    for document, spans in documents
                ]
                self._put_file(file, numbers)
                stored += numbers
            pending = DocumentState.PENDING
            return [each for each in dict.fromkeys(stored) if self._rows[each].state == pending]

        return self._change(change)

    def forget_file(self, path: Path) -> None:
        def change() -> None:
            if row := self._find_file(path):
                self._put(replace(row, state=_GONE))
                self._remove_unlinked(set(row.record["documents"]))
                self._name_other_source(set(row.record["documents"]))

        self._change(change)

    def remove(self, numbers: Collection[int]) -> None:
        removed = set(numbers)

        def change() -> None:
            for row in self._list_files():
                kept = [each for each in row.record["documents"] if each not in removed]
                if len(kept) < len(row.record["documents"]):
                    again = {"size": -1, "sha256": "", "documents": kept}
                    state = _FILE if kept else _GONE
                    self._put(replace(row, state=state, record=row.record | again))
            self._remove_unlinked(removed)

        self._change(change)

    def mark(self, numbers: Collection[int], state: DocumentState) -> None:
        with self._lock:
            self._refresh()
            moved = [row for row in self._find(numbers) if row.is_present and row.state != state]
            if not moved:
                return
            of = any_of("number", (row.number for row in moved))
            present = f"state IN ({DocumentState.PENDING:d}, {DocumentState.INDEXED:d})"
            written = self.table.update({"state": f"{state:d}"}, f"{of} AND {present}")
            self._applied(written, [replace(row, state=state) for row in moved])

    def purge(self, numbers: Collection[int]) -> None:
        with self._lock:
            self._refresh()
            gone = [row.number for row in self._rows.values() if row.state == _GONE]
            removing = [
                row.number for row in self._find(numbers) if row.state == DocumentState.REMOVING
            ]
            if gone or removing:
                of = any_of("number", [*gone, *removing])
                self.table.delete(f"{of} AND state IN ({DocumentState.REMOVING:d}, {_GONE})")
                self._version = 0
        self.checkpoint(erase=bool(gone or removing))

    def checkpoint(self, *, erase: bool = False) -> None:
        """Put the fragments of many small changes together."""
        self.table.tidy(erase=erase)

    # The library itself

    def meta(self, key: str) -> str | None:
        with self._lock:
            self._refresh()
            number = self._facts.get(key)
            return None if number is None else str(self._rows[number].record["value"])

    def set_meta(self, **facts: str) -> None:
        if not all(self.meta(key) == value for key, value in facts.items()):  # often they are
            self.change_facts(facts)

    def list_facts(self, start: str) -> dict[str, str]:
        """Return the facts whose names start so."""
        with self._lock:
            self._refresh()
            found = [key for key in self._facts if key.startswith(start)]
            return {key: self._rows[self._facts[key]].record["value"] for key in found}

    def change_facts(self, facts: Mapping[str, str | None]) -> None:
        """Record facts in one commit, and forget those that are None."""

        def change() -> None:
            for key, value in facts.items():
                number = self._facts.get(key) or self._take_number()
                state = _GONE if value is None else _FACT
                self._put(_Row(number, state, {"key": key, "value": value}))

        self._change(change)

    def restore(self, name: str) -> None:
        """Go back to the version of this name, but give no number a second time: other processes
        keep documents by number."""
        with self._lock:
            self._refresh()
            clock = self._rows[0]
            self.table.restore(name)
            self._version = 0
            self._change(lambda: self._put(clock))

    def check(self) -> list[str]:
        missing = _linked(self._list_files()) - set(self.numbers().values())
        found = [f"a file refers to a missing document ({number})" for number in sorted(missing)]
        return self.table.check() + found

    def close(self) -> None:
        pass

    # Rows in memory

    def _read_rows(self) -> list[_Row]:
        with self._lock:
            self._refresh()
            return list(self._rows.values())

    def _find(self, numbers: Iterable[int]) -> list[_Row]:
        """Return the documents with these numbers, whatever their state."""
        with self._lock:
            self._refresh()
            found = (self._rows.get(number) for number in numbers)
            return [row for row in found if row and row.state < _CLOCK]

    def _find_file(self, path: Path) -> _Row | None:
        with self._lock:
            self._refresh()
            number = self._files.get(str(path))
            return None if number is None else self._rows[number]

    def _list_files(self) -> list[_Row]:
        return [row for row in self._read_rows() if row.state == _FILE]

    def _linked_to(self, path: Path) -> list[int]:
        row = self._find_file(path)
        return row.record["documents"] if row else []

    def _read_long(self, number: int, columns: Sequence[str] = _LONG) -> dict[str, str] | None:
        found = self.table.read(columns, f"number = {number}").to_pylist()
        return found[0] if found else None

    def _get_long(self, number: int) -> dict[str, str]:
        """Return the long columns of a document, as they are staged or stored."""
        found = (self._staged or {}).get(number) or self._read_long(number) or _EMPTY
        return {name: found[name] for name in _LONG}

    def _refresh(self) -> None:
        """Read the rows again if another process has changed the table."""
        if self._staged is not None:
            return
        if self._version and self.table.refresh() == self._version:
            return
        self._version = self.table.refresh()  # if others write now, the next call reads again
        rows = self.table.read(["number", "state", "record"]).sort_by("number").to_pylist()
        for mapping in (self._rows, self._ids, self._files, self._facts, self._passages):
            mapping.clear()
        for row in rows:
            self._note(_Row(row["number"], row["state"], json.loads(row["record"])))

    def _note(self, row: _Row) -> None:
        """Take a row into memory, and up in the lookups."""
        self._rows[row.number] = row
        if row.state == _FILE:
            self._files[row.record["path"]] = row.number
        elif row.state == _FACT:
            self._facts[row.record["key"]] = row.number
        elif row.is_present:
            self._ids[row.record["id"]] = row.number
        elif row.state == _GONE:
            self._files.pop(row.record.get("path", ""), None)
            self._facts.pop(row.record.get("key", ""), None)
        elif row.state == DocumentState.REMOVING and self._ids.get(row.record["id"]) == row.number:
            del self._ids[row.record["id"]]

    def _applied(self, written: int, rows: Iterable[_Row]) -> None:
        """Take rows written in this version into memory; read all again if others wrote too."""
        self._version = written if written == self._version + 1 else 0
        for row in rows:
            self._note(row)

    def _change(self, change: Callable[[], T]) -> T:
        """Run a function that puts rows, and commit them together."""
        with self._lock:
            for _ in range(TRIES):
                self._refresh()
                self._staged = {}
                try:
                    result = change()
                    if self._staged:
                        self._put(self._rows[0])
                        rows = list(self._staged.values())
                        self._applied(self.table.upsert(_to_table(rows), self._version), ())
                    return result
                except BaseException as error:
                    self._version = 0
                    if not isinstance(error, LibraryLocked):
                        raise
                    conflict = error
                finally:
                    self._staged = None
            raise conflict

    def _put(self, row: _Row, **long: str) -> None:
        """Stage a row for the commit; without long columns they are empty."""
        assert self._staged is not None
        self._note(row)
        self._staged[row.number] = {
            "number": row.number,
            "state": row.state,
            "record": json.dumps(row.record),  # in ASCII: a path may be no valid text
            **_EMPTY,
            **long,
        }

    def _take_number(self) -> int:
        clock = self._rows[0]
        self._put(replace(clock, record={"next": clock.record["next"] + 1}))
        return int(clock.record["next"]) * _STEP

    def _put_file(self, file: FileRecord, documents: Sequence[int] | None = None) -> None:
        known = self._find_file(file.path)
        if documents is None:
            documents = known.record["documents"] if known else []
        record = {
            "path": str(file.path),
            "size": file.size,
            "mtime_ns": file.mtime_ns,
            "checked_ns": file.checked_ns,
            "sha256": file.sha256,
            "warnings": list(file.warnings),
            "failure": list(file.failure),
            "documents": list(documents),
        }
        self._put(_Row(known.number if known else self._take_number(), _FILE, record))

    def _keep(self, document: Document) -> int | None:
        """Return the number of the stored document with this id, title, text and structure."""
        for id_ in (document.id, renamed(document)):
            row = self._rows.get(self._ids.get(id_, -1))
            if row is None or row.record["title"] != document.title:
                continue
            if row.record["digest"] == document.digest:
                pages, tree = structure_json(document)
                now = {
                    "source": document.source,
                    "metadata": as_json(dict(document.metadata)),
                    "structure": digest(pages + tree),  # older releases stored none
                }
                if row.record.get("structure", now["structure"]) != now["structure"]:
                    continue
                if row.record != row.record | now:  # its file may have moved, or its reader changed
                    long = self._get_long(row.number)
                    if (long["pages"], long["tree"]) != (pages, tree):
                        continue
                    self._put(replace(row, record=row.record | now), **long)
                return row.number
        return None

    def _add(self, document: Document, spans: Sequence[Span]) -> int:
        """Stage a pending document; one whose id is taken gets a part of its digest added."""
        id_ = document.id
        while id_ in self._ids:
            id_ += f"-{document.digest[:10]}"
        number = self._take_number()
        pages, tree = structure_json(document)
        record = {
            "id": id_,
            "title": document.title,
            "source": document.source,
            "media_type": document.media_type,
            "language": document.language,
            "digest": document.digest,
            "structure": digest(pages + tree),
            "characters": len(document.text),
            "pages": len(document.pages),
            "passages": len(spans),
            "metadata": as_json(dict(document.metadata)),
            "warnings": as_json(document.warnings),
        }
        passages = (document.passage(Span(document.id, span.start, span.end)) for span in spans)
        self._put(
            _Row(number, DocumentState.PENDING, record),
            passages=as_json([[p.span.start, p.span.end, p.page, p.section] for p in passages]),
            pages=pages,
            tree=tree,
            text=document.text,
        )
        return number

    def _remove_unlinked(self, numbers: Collection[int | None]) -> None:
        """Stage the removal of those of these documents that no file has: their text is gone."""
        if not numbers:
            return
        linked = _linked(self._list_files())
        for row in self._find(number for number in numbers if number and number not in linked):
            self._put(replace(row, state=DocumentState.REMOVING))

    def _name_other_source(self, numbers: Collection[int | None]) -> None:
        """Let documents that a file no longer has name another file that has them."""
        for row in self._find(number for number in numbers if number):
            files = [file.path for file in self.files_of(row.number)] if row.is_present else []
            if files and is_lost(row.record["source"], files):
                new = row.record | {"source": clean_text(str(min(files)))}
                self._put(replace(row, record=new), **self._get_long(row.number))


def _to_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=_ROWS)


def _to_file(row: _Row) -> FileRecord:
    of = row.record
    state = (of["size"], of["mtime_ns"], of["checked_ns"], of["sha256"])
    return FileRecord(Path(of["path"]), *state, tuple(of["warnings"]), tuple(of["failure"]))


def _linked(files: Iterable[_Row]) -> set[int]:
    return {number for row in files for number in row.record["documents"]}
