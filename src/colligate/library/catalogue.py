"""The catalogue: a library's documents and passages, and the files they were read from."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any, Self

from colligate.documents import Document, Passage, Span, Tree, clean_text
from colligate.documents.document import Page
from colligate.documents.reading.source import find_path
from colligate.library.protocols import FileRecord, ReadFile, StoredPassage, StoredText
from colligate.library.schema import Database, DocumentState
from colligate.library.sources import DocumentInfo
from colligate.library.web import is_address

# Written exactly so, so that SQLite uses the index on ids.
_PRESENT = f"state != {DocumentState.REMOVING:d}"


class Catalogue:
    """A library's documents with the places of their passages, their files, and facts, in SQLite.

    A document's number grows with the order in which documents were added, a passage's number with
    its place in the document. Calls block, may come from any thread and raise what those of
    `Database` raise. A change is one transaction.
    """

    _seen: dict[int, tuple[str, Path]] | None = None  # by number: the id, and a file that has it

    def __init__(self, database: Database) -> None:
        self.database = database

    def confine(self, folders: Iterable[Path]) -> Self:
        """Return it as if it had no documents but those of the files in these folders."""
        seen: dict[int, tuple[str, Path]] = {}
        query = (
            "SELECT d.number, d.id, f.path FROM file_documents f JOIN documents d"
            f" ON d.number = f.document WHERE f.path > ? AND f.path < ? AND d.{_PRESENT}"
        )
        for folder in folders:
            start = os.fsencode(folder / "x")[:-1]  # with the separator at its end
            end = start[:-1] + bytes([start[-1] + 1])
            for number, id_, path in self._rows(query, start, end):
                seen.setdefault(number, (id_, Path(os.fsdecode(path))))
        other = copy.copy(self)
        other._seen = seen
        return other

    # Documents and passages

    def infos(self) -> list[DocumentInfo]:
        """Return all documents that are not being removed, in the order they were added."""
        query = (
            "SELECT number, id, title, source, characters, page_count, passage_count, language,"
            f" metadata FROM documents WHERE {_PRESENT}"
        )
        if self._seen is None:
            found = self._rows(query + " ORDER BY number")
        else:
            found = sorted(self._listed(query + " AND number IN (%s)", list(self._seen)))
        rows = (
            (*row[1:3], self._source(row[0], row[3]), *row[4:-1], json.loads(row[-1]))
            for row in found
        )
        return [DocumentInfo(*row) for row in rows]

    def numbers(self, ids: Iterable[str] | None = None) -> dict[str, int]:
        """Return the numbers of these documents (None: of all), without unknown ones."""
        query = f"SELECT id, number FROM documents WHERE {_PRESENT}"
        if self._seen is not None:  # not asked for others at all: times must not tell of them
            seen = {id_: number for number, (id_, _) in sorted(self._seen.items())}
            return seen if ids is None else {id_: seen[id_] for id_ in ids if id_ in seen}
        if ids is None:
            return dict(self._rows(query + " ORDER BY number"))
        # No stored id has half a surrogate pair, and SQLite accepts none.
        valid = [id_ for id_ in ids if id_.encode(errors="ignore").decode() == id_]
        return dict(self._listed(query + " AND id IN (%s)", valid))

    def in_state(self, state: DocumentState) -> list[int]:
        """Return the numbers of the documents in a state, in order."""
        query = "SELECT number FROM documents WHERE state = ? ORDER BY number"
        return [number for (number,) in self._rows(query, state) if self._is_seen(number)]

    def is_searchable(self) -> bool:
        """Return whether any passage should be in the index."""
        query = "SELECT 1 FROM documents WHERE state = ? AND passage_count > 0 LIMIT 1"
        return bool(self._rows(query, DocumentState.INDEXED))

    def languages(self) -> list[str]:
        """Return the languages of the searchable documents."""
        query = "SELECT DISTINCT language FROM documents WHERE state = ?"
        if self._seen is None:
            return [language for (language,) in self._rows(query, DocumentState.INDEXED)]
        found = self._listed(query + " AND number IN (%s)", [*self._seen], DocumentState.INDEXED)
        return sorted({language for (language,) in found})

    def document(self, number: int) -> Document | None:
        """Return one whole document."""
        columns = ("id", "title", "text", "tree", "pages", "source", "media_type", "language")
        of = self._read(number, *columns, "metadata", "warnings") if self._is_seen(number) else {}
        if not of:
            return None
        of["source"] = self._source(number, of["source"])
        of["tree"] = Tree.from_json(json.loads(of["tree"]), of["id"])
        of["pages"] = tuple(Page(*page) for page in json.loads(of["pages"]))
        # In libraries of older releases these may hold half surrogate pairs.
        facts = json.loads(of["metadata"])
        of["metadata"] = {key: clean_text(value) for key, value in facts.items()}
        of["warnings"] = tuple(map(clean_text, json.loads(of["warnings"])))
        return Document(**of)

    def text(self, number: int) -> StoredText | None:
        """Return one document's text, without building its tree."""
        columns = ("id", "title", "language", "source", "text", "media_type")
        of = self._read(number, *columns, "metadata") if self._is_seen(number) else {}
        if not of:
            return None
        of["source"] = self._source(number, of["source"])
        of["date"] = json.loads(of.pop("metadata")).get("date", "")
        return StoredText(**of)

    def digest(self, number: int) -> str:
        """Return the SHA-256 of a document's text as it was stored."""
        return str(self._read(number, "digest").get("digest", ""))

    def passages(self, numbers: Sequence[int]) -> dict[int, StoredPassage]:
        """Return the passages with these numbers that belong to searchable documents."""
        query = (
            f"SELECT {_PASSAGE} FROM passages p JOIN documents d ON d.number = p.document"
            " WHERE d.state = ? AND p.number IN (%s)"
        )
        found = map(_to_passage, self._listed(query, numbers, DocumentState.INDEXED))
        return {passage.number: passage for passage in found}

    def passages_of(self, document: int) -> list[StoredPassage]:
        """Return all passages of one document, in order."""
        query = f"SELECT {_PASSAGE} FROM passages p WHERE document = ? ORDER BY number"
        return [_to_passage(row) for row in self._rows(query, document)]

    def passage_numbers(self, state: DocumentState) -> dict[int, int]:
        """Return the passages of all documents in a state, each with its document."""
        query = (
            "SELECT p.number, p.document FROM passages p JOIN documents d ON d.number = p.document"
            " WHERE d.state = ?"
        )
        return dict(self._rows(query, state))

    # Files

    def file(self, path: Path) -> FileRecord | None:
        """Return what is recorded of a file that was read, or could not be."""
        found = self._rows(f"SELECT {_FILE} FROM files WHERE path = ?", os.fsencode(path))
        return _to_file(found[0]) if found else None

    def files(self) -> list[Path]:
        """Return the paths of all recorded files."""
        found = self._rows("SELECT path FROM files ORDER BY path")
        return [Path(os.fsdecode(path)) for (path,) in found]

    def files_of(self, document: int) -> list[FileRecord]:
        """Return the files that a document was read from."""
        query = f"SELECT {_FILE} FROM files JOIN file_documents USING (path) WHERE document = ?"
        found = [_to_file(row) for row in self._rows(query, document)]
        own = None if self._seen is None else self._seen.get(document, ("", Path()))[1]
        return [file for file in found if own in (None, file.path)]

    def documents_of(self, path: Path) -> list[str]:
        """Return the ids of a file's documents, in the file's order."""
        found = self._rows(
            "SELECT d.id FROM file_documents f JOIN documents d ON d.number = f.document"
            " WHERE f.path = ? ORDER BY f.place",
            os.fsencode(path),
        )
        return [id_ for (id_,) in found]

    def list_removed(self) -> list[tuple[int, str, str]]:
        """Return number, id and source of the documents that are being removed."""
        query = "SELECT number, id, source FROM documents WHERE state = ?"
        return self._rows(query, DocumentState.REMOVING)

    # Changes

    def note_file(self, file: FileRecord) -> None:
        """Record how a file was found; its documents, if any, stay as they are."""
        self.database.change(lambda db: _write_file(db, file))

    def store(self, files: Sequence[ReadFile]) -> list[int]:
        """Replace the documents of files, and remove those that no file has any more; return which
        are pending. A document that is stored already stays as it is."""

        def change(db: Connection) -> list[int]:
            stored: list[int] = []
            for file, documents in files:
                before = _linked_documents(db, file.path)
                _write_file(db, file)
                _link(db, file.path, [])
                kept = {self._keep(db, document) for document, _ in documents}
                _remove_unlinked(db, before - kept)
                _name_other_source(db, before - kept)
                numbers = [
                    self._keep(db, document) or self._add(db, document, spans)
                    for document, spans in documents
                ]
                _link(db, file.path, numbers)
                stored += numbers
            return [number for number in dict.fromkeys(stored) if _is_pending(db, number)]

        return self.database.change(change)

    def forget_file(self, path: Path) -> None:
        """Delete a file's record and remove the documents that no other file has."""

        def change(db: Connection) -> None:
            before = _linked_documents(db, path)
            db.execute("DELETE FROM files WHERE path = ?", (os.fsencode(path),))
            _remove_unlinked(db, before)
            _name_other_source(db, before)

        self.database.change(change)

    def remove(self, numbers: Collection[int]) -> None:
        """Remove documents; their files are read again when they are added again."""
        each = [(number,) for number in numbers]
        holders = "path IN (SELECT path FROM file_documents WHERE document = ?)"

        def change(db: Connection) -> None:
            db.executemany(f"UPDATE files SET size = -1, sha256 = '' WHERE {holders}", each)
            db.executemany("DELETE FROM file_documents WHERE document = ?", each)
            db.execute(
                "DELETE FROM files WHERE sha256 = ''"
                " AND path NOT IN (SELECT path FROM file_documents)"
            )
            _remove_unlinked(db, numbers)

        self.database.change(change)

    def mark(self, numbers: Collection[int], state: DocumentState) -> None:
        """Move documents to a state, except those that are being removed."""
        query = f"UPDATE documents SET state = ? WHERE number = ? AND {_PRESENT}"
        each = [(state, number) for number in numbers]
        self.database.change(lambda db: db.executemany(query, each))

    def purge(self, numbers: Collection[int]) -> None:
        """Delete those of these documents that are being removed, and every trace of their text."""
        query = "DELETE FROM documents WHERE number = ? AND state = ?"
        each = [(number, DocumentState.REMOVING) for number in numbers]
        self.database.change(lambda db: db.executemany(query, each))
        self.checkpoint()

    def checkpoint(self, *, erase: bool = False) -> None:
        """Write out or put together what many small changes have left. With `erase`, older
        versions, if there are any, are erased too, whoever reads them."""
        self.database.empty_log()

    # The library itself

    def meta(self, key: str) -> str | None:
        """Return one fact about the library."""
        found = self._rows("SELECT value FROM meta WHERE key = ?", key)
        return str(found[0][0]) if found else None

    def set_meta(self, **facts: str | None) -> None:
        """Record facts about the library, and forget those that are None."""
        new = {key: value for key, value in facts.items() if self.meta(key) != value}

        def change(db: Connection) -> None:
            for key, value in new.items():
                db.execute("DELETE FROM meta WHERE key = ?", (key,))
                if value is not None:
                    db.execute("INSERT INTO meta VALUES (?, ?)", (key, value))

        if new:
            self.database.change(change)

    def check(self) -> list[str]:
        """Return the problems that SQLite itself finds."""
        found = [line for (line,) in self._rows("PRAGMA integrity_check") if line != "ok"]
        broken = self._rows("PRAGMA foreign_key_check")
        return found + [f"a row of {row[0]} refers to a missing row of {row[2]}" for row in broken]

    def close(self) -> None:
        """Close it. Safe to call twice."""
        self.database.close()

    def _is_seen(self, number: int) -> bool:
        return self._seen is None or number in self._seen

    def _source(self, number: int, source: str) -> str:
        """Return a file of a document that may be named: other folders may have it too."""
        return source if self._seen is None else str(self._seen[number][1])

    # Parts that a store on tables has of its own

    def _rows(self, query: str, *values: Any) -> list[Any]:
        return self.database.rows(query, *values)

    def _listed(self, query: str, listed: Sequence[Any], *values: Any) -> Iterator[Any]:
        return self.database.listed(query, listed, *values)

    def _read(self, number: int, *columns: str) -> dict[str, Any]:
        """Return columns of a document; nothing if it is gone."""
        query = f"SELECT {', '.join(columns)} FROM documents WHERE number = ?"
        found = self._rows(query, number)
        return dict(zip(columns, found[0], strict=True)) if found else {}

    def _take_number(self, db: Connection) -> int | None:
        """Return the number of a new document; None lets SQLite choose it."""
        return None

    def _is_same(self, stored: tuple[str, str], given: tuple[str, str]) -> bool:
        """Return whether the pages and tree of a stored document are these."""
        return stored == given

    def _keep(self, db: Connection, document: Document) -> int | None:
        """Return the number of the stored document with this id, title, text and structure."""
        rows = db.execute(
            "SELECT number, pages, tree FROM documents"
            f" WHERE id IN (?, ?) AND title = ? AND digest = ? AND {_PRESENT}",
            (document.id, _renamed(document), document.title, document.digest),
        ).fetchall()
        structure = _structure_json(document)
        for number, pages, tree in rows:
            if self._is_same((pages, tree), structure):
                # Its file may have moved, or another reader has read it.
                now = (document.source, _as_json(dict(document.metadata)))
                query = (
                    "UPDATE documents SET source = ?, metadata = ?"
                    " WHERE number = ? AND (source, metadata) != (?, ?)"
                )
                db.execute(query, (*now, number, *now))
                return int(number)
        return None

    def _add(self, db: Connection, document: Document, spans: Sequence[Span]) -> int:
        """Write a pending document and its passages; return its number."""
        if _is_taken(db, document.id):  # two files of records may both have a "1"
            new = _renamed(document)
            while _is_taken(db, new):
                new += f"-{document.digest[:10]}"
            tree = Tree.from_json(document.tree.to_json(), new)
            document = dataclasses.replace(document, id=new, tree=tree)
            spans = [Span(new, span.start, span.end) for span in spans]
        given = self._take_number(db)
        row: dict[str, Any] = {"number": given, "state": DocumentState.PENDING}
        same = ("id", "title", "source", "media_type", "language", "digest", "text")
        row |= {name: getattr(document, name) for name in same}
        row |= {"characters": len(document.text), "page_count": len(document.pages)}
        row |= {"passage_count": len(spans), "metadata": _as_json(dict(document.metadata))}
        row["warnings"] = _as_json(document.warnings)
        row["pages"], row["tree"] = _structure_json(document)
        number = insert(db, "documents", row)
        db.executemany(
            "INSERT INTO passages (number, document, start, end, page, section)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            [
                (given and given + place, number, *_place_of(document.passage(span)))
                for place, span in enumerate(spans, start=1)
            ],
        )
        return number


# Rows

_FILE = "path, size, mtime_ns, checked_ns, sha256, warnings, failure"
_PASSAGE = "p.number, p.document, p.start, p.end, p.page, p.section"


def insert(db: Connection, table: str, row: Mapping[str, Any]) -> int:
    """Write a new row, by its columns; return its number."""
    marks = ", ".join("?" * len(row))
    query = f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})"
    number = db.execute(query, tuple(row.values())).lastrowid
    assert number is not None
    return number


def _place_of(passage: Passage) -> tuple[int, int, int | None, str]:
    return passage.span.start, passage.span.end, passage.page, _as_json(passage.section)


def _to_file(row: Sequence[Any]) -> FileRecord:
    path, size, mtime_ns, checked_ns, sha256, *lists = row
    warnings, failure = (tuple(json.loads(each)) for each in lists)
    path = Path(os.fsdecode(path))
    return FileRecord(path, size, mtime_ns, checked_ns, sha256, warnings, failure)


def _to_passage(row: Sequence[Any]) -> StoredPassage:
    number, document, start, end, page, section = row
    return StoredPassage(number, document, start, end, page, tuple(json.loads(section)))


def _write_file(db: Connection, file: FileRecord) -> None:
    """Write a file's row over the one before; its documents stay linked."""
    # In ASCII: a reader of another package may warn of anything.
    lists = json.dumps(file.warnings), json.dumps(file.failure)
    values = (os.fsencode(file.path), file.size, file.mtime_ns, file.checked_ns, file.sha256)
    columns = _FILE.split(", ")
    marks = ", ".join("?" * len(columns))
    changes = ", ".join(f"{column} = excluded.{column}" for column in columns[1:])
    db.execute(
        f"INSERT INTO files ({_FILE}) VALUES ({marks}) ON CONFLICT (path) DO UPDATE SET {changes}",
        (*values, *lists),
    )


def _linked_documents(db: Connection, path: Path) -> set[int]:
    rows = db.execute("SELECT document FROM file_documents WHERE path = ?", (os.fsencode(path),))
    return {number for (number,) in rows}


def _link(db: Connection, path: Path, documents: Sequence[int]) -> None:
    """Record which documents a file has, in order, in place of those linked before."""
    key = os.fsencode(path)
    db.execute("DELETE FROM file_documents WHERE path = ?", (key,))
    db.executemany(
        "INSERT INTO file_documents (path, place, document) VALUES (?, ?, ?)",
        [(key, place, number) for place, number in enumerate(documents)],
    )


def _remove_unlinked(db: Connection, numbers: Collection[int]) -> None:
    """Remove those of these documents that no file has."""
    db.executemany(
        "UPDATE documents SET state = ? WHERE number = ?"
        " AND number NOT IN (SELECT document FROM file_documents)",
        [(DocumentState.REMOVING, number) for number in numbers],
    )


def _name_other_source(db: Connection, numbers: Collection[int]) -> None:
    """Let documents that a file no longer has name another file that has them."""
    for number in numbers:
        rows = db.execute(
            "SELECT source, path FROM documents JOIN file_documents ON document = number"
            " WHERE number = ? ORDER BY path",
            (number,),
        ).fetchall()
        files = [Path(os.fsdecode(path)) for _, path in rows]
        if files and _is_lost(rows[0][0], files):
            other = clean_text(str(files[0]))
            db.execute("UPDATE documents SET source = ? WHERE number = ?", (other, number))


def _is_lost(source: str, files: Collection[Path]) -> bool:
    """Return whether a source is none of its document's files: it is gone, or was named from
    another folder."""
    return not is_address(source) and resolve_path(source) not in files


def _is_pending(db: Connection, number: int) -> bool:
    query = "SELECT 1 FROM documents WHERE number = ? AND state = ?"
    return db.execute(query, (number, DocumentState.PENDING)).fetchone() is not None


def _structure_json(document: Document) -> tuple[str, str]:
    """Return a document's pages and tree as they are stored."""
    pages = [[p.number, p.start, p.end, p.label] for p in document.pages]
    return _as_json(pages), _as_json(document.tree.to_json())


def _renamed(document: Document) -> str:
    """Return the id that a document gets if another one has its own, with its digest's digits."""
    return f"{document.id}-{document.digest[:10]}"


def _is_taken(db: Connection, document_id: str) -> bool:
    query = f"SELECT 1 FROM documents WHERE id = ? AND {_PRESENT}"
    return db.execute(query, (document_id,)).fetchone() is not None


def _as_json(value: Any) -> str:
    """Return a value as it is stored."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def resolve_path(path: Path | str) -> Path:
    """Return a file's real path, by which the catalogue records it."""
    try:
        return Path(os.path.realpath(find_path(path)))
    except ValueError:  # no file can have this name
        return Path(path)
