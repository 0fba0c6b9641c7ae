"""A library on Lance tables, in a folder or in an object store; for the extra `scale`.

catalogue.lance   documents with their texts, files, and facts: one table, so each change is one
                  commit
passages.lance    the passages' vectors and terms
words.lance       which passages have which terms, once there are many: made from the former

Readers take no lock. Each change to the catalogue also replaces one row, the clock: of two writers
at the same time one meets a conflict, reads again and repeats its change. So numbers are given out
and documents are taken or left as by one process. Passages are written by their numbers: written
twice they are there once.
"""

from __future__ import annotations

import copy
import json
import os
import platform
import re
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from colligate.concurrency import in_thread
from colligate.documents import Document, Span, clean_text
from colligate.documents.document import digest
from colligate.errors import (
    LibraryDamaged,
    LibraryError,
    LibraryLocked,
    MissingExtra,
    UsageError,
)
from colligate.library.bm25 import Terms
from colligate.library.catalogue import as_json, is_lost, renamed, structure_json, to_document
from colligate.library.edge import check_space
from colligate.library.lock import find_holder
from colligate.library.protocols import (
    DocumentStore,
    FileRecord,
    IndexEntry,
    PassageStore,
    ReadFile,
    Scope,
    ScoredPassage,
    StoredPassage,
    StoredText,
)
from colligate.library.schema import DocumentState, disk_full, is_full
from colligate.library.search import SearchStore
from colligate.library.sources import DocumentInfo
from colligate.library.store import LibraryStore
from colligate.private import make_private_folder

# Lance would write lines of its own when a commit meets another writer's and is made again.
os.environ.setdefault("LANCE_LOG", "error")

try:
    import lance
    import pyarrow as pa
    from lance.fragment import write_fragments
except ImportError as error:
    raise MissingExtra(
        "a library on Lance tables needs pylance",
        f"{error.name or 'it'} is not installed",
        "pip install 'colligate[scale]'",
    ) from error

T = TypeVar("T")

CATALOGUE, PASSAGES, WORDS = "catalogue.lance", "passages.lance", "words.lance"

_TRIES = 100  # times that a change meets another writer's before it is given up
_COMMITS = 64  # after so many, small fragments are put together
_KEPT = timedelta(hours=1)  # age of versions that other processes may still read
# Seconds in which the newest version is not looked for again: in a bucket each look is a request.
_FRESH = 0.01


@dataclass
class TablesPlace:
    """Where a library's tables are; `alone` says that no other process writes them now."""

    uri: str
    alone: Callable[[], bool]
    options: Mapping[str, str] = field(default_factory=dict)

    def open(self, name: str) -> Table | None:
        """Open a table; None if there is none."""
        with self.translate_errors():
            try:
                return Table(lance.dataset(self._name(name), storage_options=self._options), self)
            except ValueError as error:
                if "was not found" in str(error):
                    return None
                raise

    def make(self, name: str, rows: pa.Table) -> Table:
        """Make a table of these rows, or open the one that another process has just made."""
        with self.translate_errors():
            # Not by `write_dataset`: it writes over a table that was made while it wrote the rows.
            uri, options = self._name(name), self._options
            try:
                new = write_fragments(
                    rows, uri, mode="create", return_transaction=True, storage_options=options
                )
                made = lance.LanceDataset.commit(uri, new, max_retries=0, storage_options=options)
            except OSError:
                if found := self.open(name):
                    return found
                raise
            return Table(made, self)

    def replace(self, name: str, rows: pa.Table) -> Table:
        """Make these rows all that a table has, whether there is one already or not."""
        with self.translate_errors():
            made = lance.write_dataset(
                rows, self._name(name), mode="overwrite", storage_options=self._options
            )
            return Table(made, self)

    def delete(self, name: str) -> None:
        """Delete a table with all its versions."""
        with self.translate_errors():
            lance.LanceDataset.drop(self._name(name), self._options, ignore_not_found=True)

    def check_space(self) -> None:
        """Raise `LibraryError` if the disk of a folder is nearly full."""
        if "://" not in self.uri:
            check_space(Path(self.uri))

    @contextmanager
    def translate_errors(self) -> Iterator[None]:
        """Raise Lance's errors as errors of colligate."""
        try:
            yield
        except (OSError, ValueError, RuntimeError) as error:
            text = str(error).replace(self.uri.strip("/"), "")
            if "oncurrent" in text or "conflict" in text:
                why = "other processes write it at the same time"
                raise LibraryLocked(
                    f"cannot write the library {self.uri}", why, "try again"
                ) from error
            if "://" not in self.uri and is_full(Path(self.uri)):
                raise disk_full(f"cannot write the library {self.uri}") from error
            # Lance adds the places in its own source to what it says.
            why = re.split(r", /\S+\.rs:\d+|\n|: <\?xml", str(error))[0]
            hint = "check that the place can be reached, then run `colligate library verify`"
            raise LibraryDamaged(f"cannot use the library {self.uri}", why, hint) from error

    def _name(self, name: str) -> str:
        return f"{self.uri}/{name}"

    @property
    def _options(self) -> dict[str, str]:
        return dict(self.options)


class Table:
    """One Lance table; one thread changes it at a time.

    Reads see the version that was the newest at most `_FRESH` seconds ago; with `pinned` the one it
    was opened with, until that is erased.
    """

    def __init__(
        self, dataset: lance.LanceDataset, place: TablesPlace, *, pinned: bool = False
    ) -> None:
        self._dataset = dataset
        self._place = place
        self._pinned = pinned
        self._changing = threading.Lock()
        self._setting = threading.Lock()
        self._commits = 0
        self._looked = time.monotonic()

    @property
    def schema(self) -> pa.Schema:
        return self._dataset.schema

    def refresh(self, *, again: bool = False) -> int:
        """Find which version is the newest, and return it; with `again` look in any case."""
        if self._pinned or (not again and time.monotonic() < self._looked + _FRESH):
            return int(self._dataset.version)
        with self._place.translate_errors():
            known = self._dataset
            newest = known.latest_version
            found = known if newest == known.version else known.checkout_version(newest)
            with self._setting:
                if self._dataset is known:  # otherwise a change here has made a newer one
                    self._dataset = found
            self._looked = time.monotonic()
            return int(self._dataset.version)

    def pin(self) -> Table:
        """Return this table as it is now: later changes are not seen."""
        self.refresh(again=True)
        return Table(self._dataset, self._place, pinned=True)

    def read(self, columns: Sequence[str], where: str | None = None, **more: Any) -> pa.Table:
        """Return the rows for which `where` holds."""
        self.refresh()
        try:
            return self._dataset.to_table(list(columns), filter=where, **more)
        except (OSError, ValueError):  # perhaps the files of this version were erased a moment ago
            self._pinned = False
            self.refresh(again=True)
        with self._place.translate_errors():
            return self._dataset.to_table(list(columns), filter=where, **more)

    def take(self, rows: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Return rows by their places in the version that was read last."""
        with self._place.translate_errors():
            return self._dataset.take(list(rows), list(columns))

    def count(self) -> int:
        """Return the number of rows."""
        self.refresh()
        with self._place.translate_errors():
            return int(self._dataset.count_rows())

    def upsert(self, rows: pa.Table, version: int | None = None) -> int:
        """Write rows over those with the same number, and return the new version.

        With `version`, `LibraryLocked` is raised if others have written these rows since it.
        """
        with self._change(version) as data:
            merge = data.merge_insert("number")
            merge = merge.when_matched_update_all().when_not_matched_insert_all()
            merge.conflict_retries(_TRIES if version is None else 0).execute(rows)
        self._tidy_sometimes()
        return int(data.version)

    def update(self, changes: dict[str, str], where: str) -> int:
        """Change columns, to SQL expressions, where `where` holds; return the new version."""
        with self._change() as data:
            data.update(changes, where)
        self._tidy_sometimes()
        return int(data.version)

    def delete(self, where: str) -> None:
        """Delete the rows for which `where` holds from this version and later ones."""
        with self._change() as data:
            data.delete(where)

    def tag(self, name: str) -> None:
        """Keep this version under a name."""
        with self._place.translate_errors():
            tags = self._dataset.tags
            change = tags.update if name in tags.list() else tags.create
            change(name, self._dataset.version)

    def untag(self, name: str) -> None:
        """Forget a name; the version is deleted with the other old ones."""
        with self._place.translate_errors(), suppress(ValueError):  # there is none
            self._dataset.tags.delete(name)

    def list_tags(self) -> list[str]:
        """Return the names of versions, in order."""
        with self._place.translate_errors():
            return sorted(self._dataset.tags.list())

    def restore(self, name: str) -> None:
        """Make the version of this name the newest, in one commit."""
        with self._changing, self._place.translate_errors():
            data = self._dataset.checkout_version(name)
            data.restore()
            with self._setting:
                self._dataset = data

    def tidy(self, rows_each: int = 1024, *, indexes: bool = False, erase: bool = False) -> None:
        """Put small fragments together, and delete versions that nobody reads any more.

        With `erase`, all older versions while no other process writes, except those with a name.
        With `indexes` those of documents and vectors are built anew: they have deleted rows.
        """
        alone = erase and self._place.alone()
        self.refresh(again=True)
        try:
            with self._change() as data:
                for known in data.describe_indices() if indexes else ():
                    data.drop_index(known.name)
                data.optimize.compact_files(
                    target_rows_per_fragment=rows_each, materialize_deletions_threshold=0.0
                )
                rows = data.count_rows() if indexes else 0
                if rows >= _INDEXED:
                    data.create_scalar_index("document", "BTREE")
                    # Another process may have made it since it was dropped here.
                    partitions = -(-rows // _PARTITION)
                    data.create_index(
                        "vector", "IVF_RQ", metric="dot", num_partitions=partitions, replace=True
                    )
                data.cleanup_old_versions(
                    timedelta(0) if alone else _KEPT,
                    delete_unverified=alone,
                    error_if_tagged_old_versions=False,
                )
        except LibraryLocked:
            if alone:
                raise
            # Another process has changed the table; a later call will do it.

    def list_leftovers(self) -> list[str]:
        """Return the files of this table that are not of its newest version."""
        self.refresh(again=True)
        with self._place.translate_errors():
            found = self._dataset.explain_cleanup_old_versions(
                timedelta(0),
                delete_unverified=True,
                include_files=True,
                error_if_tagged_old_versions=False,
            )
        return [each.path for each in found.candidate_files]

    def check(self) -> list[str]:
        """Return what Lance itself finds wrong."""
        try:
            with self._place.translate_errors():
                self._dataset.validate()
        except LibraryDamaged as error:
            return [str(error)]
        return []

    @contextmanager
    def _change(self, version: int | None = None) -> Iterator[lance.LanceDataset]:
        """Yield a copy of the newest version to change: reads under way keep the one they have."""
        with self._changing, self._place.translate_errors():
            data = self._dataset.checkout_version(version or self._dataset.version)
            try:
                yield data
            except BaseException:
                self._looked = -inf  # another process may have changed the table
                raise
            with self._setting:
                self._dataset = data

    def _tidy_sometimes(self) -> None:
        self._commits += 1
        if self._commits % _COMMITS == 0:
            self.tidy()


# The catalogue

# Numbers go up in steps, so that the passages of a document come between it and the next one.
_STEP = 1 << 20

# Rows that are not documents have a state of their own. One that is gone is deleted later.
_CLOCK, _FILE, _FACT, _GONE = 10, 11, 12, 13

_NUMBER = pa.field(
    "number", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}
)
_ROWS = pa.schema(
    [
        _NUMBER,
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

    def hidden(self) -> list[int]:
        """Return all that is not indexed: another process may be writing their passages."""
        hidden = (DocumentState.PENDING, DocumentState.REMOVING)
        return [row.number for row in self._read_rows() if row.state in hidden]

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

    def count_passages(self, documents: Sequence[int]) -> int:
        return sum(row.record["passages"] for row in self._find(documents))

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
            of = _any_of("number", (row.number for row in moved))
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
                of = _any_of("number", [*gone, *removing])
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
            for _ in range(_TRIES):
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


def _any_of(column: str, numbers: Iterable[int]) -> str:
    return f"{column} IN ({','.join(map(str, numbers))})"


# The passages

_ROWS_EACH = 1 << 16  # passages in one file: about 100 MB

# From so many passages on, terms have an index, and so have vectors: of a bit for each number in
# partitions of about so many passages. The best of all partitions, several times as many as asked
# for, are compared exactly: of the 50 nearest of 50,000 and 200,000 it finds .998 and all.
_INDEXED = 20_000
_PARTITION = 4096
_EVERY_PARTITION = 1 << 20
_COMPARED_EXACTLY = 4  # times the passages asked for

_NUMBERS = ("number", "document")
_VERSIONS = 2  # whose words are in memory


@dataclass(frozen=True, slots=True)
class _Inverted:
    """Which rows have which terms: `rows[starts[i]:starts[i + 1]]` have `terms[i]`."""

    terms: NDArray[np.uint32]  # in order, each once
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]  # from 0
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, found: pa.Table) -> _Inverted:
        """Invert the terms of rows."""
        lists, weights = (found[name].combine_chunks() for name in ("terms", "weights"))
        rows = np.arange(len(found), dtype=np.int32)
        rows = np.repeat(rows, lists.value_lengths().to_numpy())
        ids = lists.flatten().to_numpy()
        order = np.argsort(ids, kind="stable")
        terms, starts = np.unique(ids[order], return_index=True)
        starts = np.append(starts, len(ids))
        return cls(terms, starts, rows[order], weights.flatten().to_numpy()[order])

    def find(self, term: int) -> _Posting | None:
        """Return the rows that have a term, and its weight in each."""
        if (at := _find_place(self.terms, term)) is None:
            return None
        part = slice(self.starts[at], self.starts[at + 1])
        return self.rows[part], self.weights[part]

    def to_table(self, numbers: NDArray[np.int64]) -> pa.Table:
        """Return a row for each term; the first one also has the numbers of all passages."""
        lists = (self.rows, self.weights)
        columns = [pa.LargeListArray.from_arrays(self.starts, each) for each in lists]
        rest = [None] * (len(self.terms) - 1)
        columns.append(pa.array([numbers, *rest], pa.large_list(pa.int64())))
        return pa.table([self.terms, *columns], ["term", "rows", "weights", "numbers"])


_Posting = tuple[NDArray[Any], NDArray[np.float32]]


def _find_place(terms: NDArray[np.uint32], term: int) -> int | None:
    at = int(np.searchsorted(terms, np.uint32(term)))
    return at if at < len(terms) and terms[at] == term else None


class _Words:
    """Which passages of one version have which terms.

    The table of words may be of an older or a newer version: passages that it lacks are read from
    their own table, and those it has besides are left out. A number's terms never change.

    Attributes:
        numbers: all passages, in order.
        documents: the document of each.
    """

    def __init__(self, passages: Table, words: Table | None) -> None:
        found = passages.read(_NUMBERS).sort_by("number")
        self.numbers, self.documents = (found[name].to_numpy() for name in _NUMBERS)
        self._words = words
        self._terms = np.empty(0, np.uint32)
        old = np.empty(0, np.int64)
        if words:
            self._terms = words.read(["term"])["term"].to_numpy()
            old = words.take([0], ["numbers"])["numbers"].combine_chunks().flatten().to_numpy()
        self._places = self._find_places(old)
        is_new = np.ones(len(self.numbers), bool)
        is_new[self._places[self._places >= 0]] = False
        of = _to_filter(Scope(set(self.documents[is_new].tolist()))) if len(old) else None
        found = passages.read([*_NUMBERS, "terms", "weights"], of)
        places = self._find_places(found["number"].to_numpy())
        keep = (places >= 0) & is_new[places]
        self._new_places = places[keep]
        self._new = _Inverted.of(found.filter(pa.array(keep)))

    def find(self, terms: Sequence[int]) -> dict[int, _Posting]:
        """Return for each term that any passage has their places and its weight in each."""
        found_at = ((term, _find_place(self._terms, term)) for term in terms)
        at = {term: place for term, place in found_at if place is not None}
        parts: dict[int, list[_Posting]] = {term: [] for term in terms}
        if self._words and at:
            taken = self._words.take(list(at.values()), ["rows", "weights"])
            rows, weights = (taken[name].combine_chunks() for name in ("rows", "weights"))
            for i, term in enumerate(at):
                places = self._places[rows[i].values.to_numpy()]
                is_here = places >= 0
                parts[term].append((places[is_here], weights[i].values.to_numpy()[is_here]))
        for term, found in parts.items():
            if new := self._new.find(term):
                found.append((self._new_places[new[0]], new[1]))
        return {
            term: (np.concatenate([p for p, _ in found]), np.concatenate([w for _, w in found]))
            for term, found in parts.items()
            if found
        }

    def _find_places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where passages are among those of this version; those that are not there: -1."""
        if not len(self.numbers):
            return np.full(len(numbers), -1)
        at = np.searchsorted(self.numbers, numbers)
        at[at == len(self.numbers)] = 0
        return np.where(self.numbers[at] == numbers, at, -1)


class LanceIndex:
    """Passages' vectors and terms in one table, and an index of the terms in another."""

    def __init__(self, table: Table, place: TablesPlace) -> None:
        self.table = table
        self._place = place
        self._words = LRUCache[int, _Words](_VERSIONS)
        self._reading = threading.Lock()

    @classmethod
    def make(cls, place: TablesPlace, dimension: int) -> LanceIndex:
        """Make an empty index for vectors of this length."""
        schema = pa.schema(
            [
                _NUMBER,
                pa.field("document", pa.int64()),
                pa.field("vector", pa.list_(pa.float32(), dimension)),
                pa.field("terms", pa.list_(pa.uint32())),
                pa.field("weights", pa.list_(pa.float32())),
            ]
        )
        place.check_space()
        return cls(place.make(PASSAGES, schema.empty_table()), place)

    def pin(self) -> LanceIndex:
        """Return the index as it is now."""
        pinned = copy.copy(self)  # what was read of the words serves both
        pinned.table = self.table.pin()
        return pinned

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return int(self.table.schema.field("vector").type.list_size)

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        if not entries:
            return
        self._place.check_space()
        vectors = np.concatenate([entry.vector for entry in entries if entry.vector is not None])
        columns = [
            [entry.passage for entry in entries],
            [entry.document for entry in entries],
            pa.FixedSizeListArray.from_arrays(pa.array(vectors), self.dimension),
            pa.array([entry.terms.ids for entry in entries], pa.list_(pa.uint32())),
            pa.array([entry.terms.weights for entry in entries], pa.list_(pa.float32())),
        ]
        self.table.upsert(pa.table(columns, schema=self.table.schema))

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, scope: Scope
    ) -> list[ScoredPassage]:
        where = _to_filter(scope)
        if where == _NOTHING:
            return []
        nearest: dict[str, Any] = {"column": "vector", "q": vector, "k": limit, "metric": "dot"}
        if scope.within is None:  # passages newer than the index are compared exactly, all of them
            nearest |= {"nprobes": _EVERY_PARTITION, "refine_factor": _COMPARED_EXACTLY}
        else:
            nearest["use_index"] = False
        found = self.table.read([*_NUMBERS, "_distance"], where, nearest=nearest, prefilter=True)
        rows = zip(*(found[name].to_pylist() for name in (*_NUMBERS, "_distance")), strict=True)
        return [ScoredPassage(number, document, 1 - far) for number, document, far in rows]

    def search_terms(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        """Return the passages that share a term, by BM25 score as Qdrant counts it, best first.

        How rare a term is counts over all passages, whatever the scope.
        """
        if not terms:
            return []
        words = self._find_words()
        try:
            found = words.find(terms.ids)
        except LibraryDamaged:  # perhaps the files of its version were erased a moment ago
            self._words.clear()
            words = self._find_words()
            found = words.find(terms.ids)
        total = len(words.numbers)
        scores = np.zeros(total, np.float32)
        for id_, weight in zip(terms.ids, terms.weights, strict=True):
            if id_ in found:
                at, weights = found[id_]
                idf = np.log(np.float32((total - len(at) + 0.5) / (len(at) + 0.5)) + np.float32(1))
                scores[at] += np.float32(weight) * idf * weights
        keep = scores > 0
        if scope.without:
            keep &= np.isin(words.documents, list(scope.without), invert=True)
        if scope.within is not None:
            keep &= np.isin(words.documents, list(scope.within))
        best = np.flatnonzero(keep)
        if len(best) > limit:  # equal scores are in order of the passages, so all of them are kept
            least = np.partition(scores[best], -limit)[-limit]
            best = best[scores[best] >= least]
        best = best[np.argsort(-scores[best], kind="stable")][:limit]
        numbers, documents = words.numbers[best].tolist(), words.documents[best].tolist()
        return list(map(ScoredPassage, numbers, documents, scores[best].tolist()))

    def _find_words(self) -> _Words:
        """Return the terms of this version."""
        with self._reading:
            version = self.table.refresh()
            if (words := self._words.get(version)) is None:
                words = self._words[version] = _Words(self.table, self._place.open(WORDS))
            return words

    def entries(self, document: int) -> list[IndexEntry]:
        names = [*_NUMBERS, "vector", "terms", "weights"]
        found = self.table.read(names, f"document = {document}").sort_by("number").to_pylist()
        return [
            IndexEntry(
                row["number"],
                document,
                np.array(row["vector"], np.float32),
                Terms(row["terms"], row["weights"]),
            )
            for row in found
        ]

    def remove(self, documents: Collection[int]) -> None:
        if documents:
            self.table.delete(_any_of("document", documents))

    def remove_passages(self, passages: Collection[int]) -> None:
        if passages:
            self.table.delete(_any_of("number", passages))

    def passages(self) -> dict[int, int]:
        found = self.table.read(_NUMBERS)
        return dict(zip(*(found[name].to_pylist() for name in _NUMBERS), strict=True))

    def count(self) -> int:
        return self.table.count()

    def flush(self) -> None:
        pass  # each change is a commit

    def optimise(self, *, erase: bool = True) -> None:
        self.table.tidy(_ROWS_EACH, indexes=True, erase=erase)
        if self.table.count() < _INDEXED:
            self._place.delete(WORDS)
            return
        found = self.table.read(["number", "terms", "weights"]).sort_by("number")
        rows = _Inverted.of(found).to_table(found["number"].to_numpy())
        with suppress(LibraryLocked):  # another process makes it now
            self._place.replace(WORDS, rows).tidy(_ROWS_EACH, erase=erase)

    def close(self) -> None:
        pass


_NOTHING = "false"


def _to_filter(scope: Scope) -> str | None:
    if scope.within is not None and not scope.within:
        return _NOTHING
    parts = [] if scope.within is None else [_any_of("document", scope.within)]
    if scope.without:
        parts.append(f"NOT {_any_of('document', scope.without)}")
    return " AND ".join(parts) or None


# Opening

_WRITER, _ERASING = "writer:", "erasing: "


class LanceStore(LibraryStore):
    """The parts of a library on Lance tables, in its folder or at `uri` in a bucket.

    In a folder, a lock lets one process write at a time. In a bucket many may write: each records
    that it does, so that nobody erases files that another one is about to commit. The folder then
    has what this machine keeps of the library: replies, runs, files that were sent or fetched.
    """

    catalogue_name = CATALOGUE
    locks_to_search = False

    def __init__(self, path: Path, wait: float, uri: str = "") -> None:
        super().__init__(path, wait)
        self.uri = uri or str(path)
        self._in_bucket = bool(uri)
        self._is_checked = self._is_erasing = False
        self._writer = ""  # the fact under which this process is recorded in a bucket
        http = {"allow_http": "true"} if uri and _endpoint().startswith("http:") else {}
        self._place = TablesPlace(self.uri, self._is_alone, http)

    async def lock_catalogue(self, on_wait: Callable[[str], None] | None = None) -> DocumentStore:
        """Take the lock of a folder, or record in a bucket that this process writes."""
        catalogue = await super().lock_catalogue(on_wait)
        if self._in_bucket and not self._writer:
            await in_thread(self._register, catalogue, "")
        return catalogue

    async def lock_to_erase(self, *, force: bool) -> DocumentStore:
        """Open the catalogue while no other process writes; with `force`, whatever is recorded."""
        catalogue = await super().lock_catalogue()
        if self._in_bucket:
            await in_thread(self._register, catalogue, _ERASING, force=force)
            self._is_erasing = True
        return catalogue

    @property
    def is_shared(self) -> bool:
        return self._in_bucket

    def is_written_elsewhere(self) -> bool:
        if self._in_bucket:
            return isinstance(self._catalogue, LanceCatalogue) and any(
                each != self._writer and not _has_ended(each)
                for each in self._catalogue.list_facts(_WRITER)
            )
        return not self._is_alone() and find_holder(self.path) is not None

    async def pin(self) -> SearchStore:
        """Return the catalogue and the index as they are now, whatever others write."""
        catalogue, index = await self.open_catalogue(), await self.open_index()
        if not isinstance(catalogue, LanceCatalogue):
            return self
        return await in_thread(_pin, catalogue, index)

    def list_snapshots(self) -> list[str]:
        table = self._place.open(CATALOGUE)
        return table.list_tags() if table else []

    async def take_snapshot(self, name: str) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            why = "a name has letters, digits, points, - and _"
            raise UsageError(f"cannot take the snapshot {name!r}", why, "choose another name")
        if name in await in_thread(self.list_snapshots):
            raise UsageError(f"cannot take the snapshot {name}", "it exists", "choose another name")
        pinned = await self.pin()
        if not isinstance(pinned, _PinnedStore):
            raise UsageError(f"cannot take a snapshot of {self.uri}", "there is no library")
        if pinned.index:
            await in_thread(pinned.index.table.tag, name)
        await in_thread(pinned.catalogue.table.tag, name)  # last: it is what counts

    def delete_snapshot(self, name: str) -> None:
        for table in self._open_tables():  # the catalogue's is the one that counts
            table.untag(name)

    def restore(self, name: str, catalogue: DocumentStore) -> None:
        assert isinstance(catalogue, LanceCatalogue)
        _, *passages = self._open_tables()
        kept = [table for table in passages if name in table.list_tags()]
        for table in kept:
            table.restore(name)
        catalogue.restore(name)
        catalogue.change_facts(dict.fromkeys(catalogue.list_facts(_WRITER)))
        if not kept:  # they were another embedder's, or there were none
            self._drop_index(catalogue)

    def _open_tables(self) -> list[Table]:
        """Open the catalogue's table, then those of the passages and words, if there are any."""
        tables = (self._place.open(each) for each in (CATALOGUE, PASSAGES, WORDS))
        return [table for table in tables if table]

    def end_change(self) -> None:
        """Let others erase."""
        if self._writer and isinstance(self._catalogue, LanceCatalogue):
            with suppress(LibraryError):  # the change itself has said so
                self._catalogue.change_facts({self._writer: None})
        self._writer, self._is_erasing = "", False

    def list_leftovers(self) -> list[str]:
        """Return the files of older versions, and of changes that were not finished."""
        return [file for table in self._open_tables() for file in table.list_leftovers()]

    @property
    def _is_writing(self) -> bool:
        return bool(self._writer) or super()._is_writing

    def _is_alone(self) -> bool:
        return self._is_erasing if self._in_bucket else self._is_writing

    def _register(self, catalogue: DocumentStore, what: str, *, force: bool = False) -> None:
        """Record that this process writes; raise `LibraryLocked` if another one forbids it.

        Both look for others after they have recorded themselves, so one of two sees the other.
        """
        assert isinstance(catalogue, LanceCatalogue)
        since = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M:%S")
        me = f"process {os.getpid()} on {platform.node()} since {since}"
        self._writer = f"{_WRITER}{uuid.uuid4().hex} {_name_process()}"
        gone = [each for each in catalogue.list_facts(_WRITER) if force or _has_ended(each)]
        catalogue.change_facts({**dict.fromkeys(gone), self._writer: what + me})
        found = catalogue.list_facts(_WRITER)
        del found[self._writer]
        for other in found.values():
            if what or other.startswith(_ERASING):
                self.end_change()
                raise LibraryLocked(
                    f"cannot {'erase' if what else 'write'} in the library {self.uri}",
                    f"another process writes it ({other})",
                    "wait; if its machine is gone, `colligate library erase --force`",
                )

    async def _hold(self, on_wait: Callable[[str], None] | None = None) -> None:
        if not self._in_bucket:
            await super()._hold(on_wait)
        elif not self._is_checked:
            make_private_folder(self.path)
            await in_thread(check_conditional_put, self.uri)
            self._is_checked = True

    def _check_folder(self) -> None:
        if not self._in_bucket:
            super()._check_folder()

    def _open_catalogue(self, *, make: bool) -> DocumentStore | None:
        if table := self._place.open(CATALOGUE):
            writable = self._in_bucket or os.access(self.path, os.W_OK)
            return LanceCatalogue(table, read_only=not writable)
        return LanceCatalogue.make(self._place) if make else None

    def _load_index(self, catalogue: DocumentStore, dimension: int | None) -> None:
        table = self._place.open(PASSAGES)
        index = LanceIndex(table, self._place) if table else None
        searchable = catalogue.is_searchable()
        if index and dimension not in (None, index.dimension) and not searchable:
            self._delete_index()  # another embedder's, of documents that are gone
            index = None
        if index is None and dimension is not None:
            index = LanceIndex.make(self._place, dimension)
        if index is None and searchable:
            raise LibraryDamaged(
                f"cannot search the library {self.uri}",
                "its passages are missing",
                "rebuild them with `colligate library verify --repair`",
            )
        self._index = index

    def _delete_index(self) -> None:
        self._place.delete(WORDS)
        self._place.delete(PASSAGES)


def _name_process() -> str:
    """Return what tells this process from those of all machines and containers that run now; empty
    where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()} {os.getpid()}"
    except OSError:
        return ""


def _has_ended(writer: str) -> bool:
    """Tell whether a recorded process ran on this machine and has ended."""
    _, *here, process = writer.split(" ")
    if not process or here != _name_process().split(" ")[:-1]:
        return False
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's
    return False


@dataclass(frozen=True, slots=True)
class _PinnedStore:
    """One version of the catalogue, and the version of the index that belongs to it."""

    catalogue: LanceCatalogue
    index: LanceIndex | None

    async def open_catalogue(self) -> DocumentStore:
        return self.catalogue

    async def open_index(self) -> PassageStore | None:
        return self.index


def _pin(catalogue: LanceCatalogue, index: PassageStore | None) -> _PinnedStore:
    assert isinstance(index, LanceIndex | None)
    for _ in range(_TRIES):
        pinned = _PinnedStore(catalogue.pin(), index.pin() if index else None)
        if pinned.catalogue.is_at(catalogue):  # nobody has written in between
            break
    return pinned


def _endpoint() -> str:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", "")


def check_conditional_put(uri: str) -> None:
    """Raise `LibraryError` unless an object store refuses to write over an object when asked to.

    Without it two writers may both believe that they have made a version.
    """
    # Imported here: a folder needs none of it.
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.session import get_session

    bucket, _, name = uri.removeprefix("s3://").partition("/")
    config = Config(
        connect_timeout=10,
        retries={"total_max_attempts": 2},
        request_checksum_calculation="when_required",  # not every store has them
    )
    try:
        client = get_session().create_client(
            "s3", region_name=os.environ.get("AWS_REGION"), config=config
        )
        for _ in range(2):
            client.put_object(Bucket=bucket, Key=f"{name}/conditional-put", IfNoneMatch="*")
        why = "it writes over an object also when asked not to"
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] in (409, 412):
            return
        why = str(error)
    except BotoCoreError as error:
        why = str(error)
    hint = "check the AWS_* variables; the store must support conditional put (If-None-Match)"
    raise LibraryError(f"cannot write the library {uri}", why, hint)
