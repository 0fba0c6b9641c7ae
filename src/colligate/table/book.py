"""The book of a table: its finished cells, in a file of JSON lines beside the table.

A line is what one document says for one column, written as soon as it is known; of several lines
the last one holds. A run that was killed goes on from there. A correction is not filled again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from colligate.core.answer import Verdict
from colligate.documents import Document
from colligate.errors import ColligateError, LibraryLocked
from colligate.library.sources import DocumentInfo
from colligate.private import make_private_file, make_private_folder
from colligate.table.columns import Column, Layout
from colligate.table.values import Plain, normalise

_LIKELY = 0.5  # probability below which a value is doubtful


class Reason(StrEnum):
    """Why a cell has no value that holds."""

    MISSING = "not in the document"
    SEVERAL = "the document says several"
    UNCONFIRMED = "not confirmed"
    UNREAD = "not read"
    BUDGET = "over the budget"


@dataclass(frozen=True)
class CellValue:
    """A value as the document writes it, as a number or an ISO date if it is one, and its place.

    `citation` has the form of those in `Answer.to_json`; a correction has no citation.
    """

    written: str
    value: Plain
    unit: str = ""
    citation: Mapping[str, Any] | None = None
    probability: float | None = None


@dataclass(frozen=True)
class Cell:
    """The values of a column in a document; `reason` and `why` say why none holds."""

    values: tuple[CellValue, ...] = ()
    reason: Reason | None = None
    why: str = ""
    corrected: bool = False

    @property
    def is_filled(self) -> bool:
        """Whether it has a value that holds."""
        return bool(self.values) and self.reason is None

    @property
    def is_empty(self) -> bool:
        """Whether the document lacks it, as far as nobody has looked."""
        return self.reason is Reason.MISSING and not self.corrected

    @property
    def text(self) -> str:
        """The values as written."""
        return "; ".join(each.written for each in self.values)

    @property
    def doubt(self) -> str:
        """Why a person should look at it; empty if nothing tells."""
        if self.reason is not None and self.reason is not Reason.MISSING:
            return f"{self.reason}: {self.why}" if self.why else self.reason.value
        for each in () if self.corrected else self.values:
            if (each.citation or {}).get("meaning") == Verdict.UNCLEAR:
                return "its quote may not say so"
            if each.probability is not None and each.probability < _LIKELY:
                return f"likely right: {each.probability:.0%}"
            if each.value is None:
                return "it cannot be read in one way"
        return ""

    def to_json(self) -> dict[str, Any]:
        """Return the cell as plain JSON, which `read_cell` reads."""
        return asdict(self)


def read_cell(given: Mapping[str, Any]) -> Cell:
    """Return a cell that `to_json` wrote."""
    values = tuple(CellValue(**each) for each in given["values"])
    reason = Reason(given["reason"]) if given["reason"] else None
    return Cell(values, reason, given["why"], given["corrected"])


def correct_cell(cell: Cell, column: Column, text: str | None, language: str) -> Cell:
    """Return a cell as a person wants it: as it is for None, with a text, or without if empty."""
    if text is None:
        return replace(cell, corrected=True)
    if not (text := text.strip()):
        return Cell(reason=Reason.MISSING, corrected=True)
    return Cell((CellValue(text, *normalise(text, column, language)),), corrected=True)


@dataclass(frozen=True)
class Row:
    """The cells of a document, or of a record in it with a name, by the name of their column."""

    document: str
    title: str
    source: str
    cells: Mapping[str, Cell]
    name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the row as plain JSON."""
        return asdict(self)


_Said = list[tuple[str, Cell]]  # the cells of a column in a document, by the name of the record


class Book:
    """The finished cells of a table; kept in memory alone without a path.

    Raises:
        ColligateError: the file cannot be read or written, or another run has it open.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._said: dict[str, _Said] = {}
        self._failed: dict[str, Cell] = {}
        self._path = path
        if path is None:
            return
        self._lock = FileLock(f"{path}.lock", timeout=0, mode=0o600, thread_local=False)
        try:
            make_private_folder(path.parent)
            self._lock.acquire()
            make_private_file(path)
            content = path.read_bytes()
            whole = content[: content.rfind(b"\n") + 1]
            if len(whole) < len(content):  # the run was killed while it wrote this line
                os.truncate(path, len(whole))
            for line in whole.splitlines():
                self._add(json.loads(line))
        except Timeout as error:
            what, hint = f"{path.name} is in use", "wait for it"
            raise LibraryLocked(what, "another program fills tables with it", hint) from error
        except OSError as error:
            why = error.strerror or str(error)
            raise ColligateError(f"cannot keep the cells in {path.name}", why) from error
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            why = "a line of it is not what a table writes"
            raise ColligateError(f"cannot read {path.name}", why, "move it away") from error

    def __enter__(self) -> Book:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let another run open the file."""
        if self._path is not None:
            Path(self._lock.lock_file).unlink(missing_ok=True)
            self._lock.release()

    def missing(self, document: Document, layout: Layout) -> tuple[Column, ...]:
        """Return the columns that are not filled yet for a document."""
        return tuple(c for c in layout.columns if _key(document, layout, c) not in self._said)

    def put(
        self, document: Document, layout: Layout, said: Mapping[Column, Sequence[tuple[str, Cell]]]
    ) -> None:
        """Keep the cells of a document's columns, each with the name of its record."""
        lines = [
            {
                "key": _key(document, layout, column),
                "id": document.id,  # by which the line is found when the document is removed
                "document": document.title,
                "column": column.name,
                "cells": [[name, asdict(cell)] for name, cell in cells],
            }
            for column, cells in said.items()
        ]
        for line in lines:
            self._add(line)
        if self._path is not None:
            text = "".join(json.dumps(line) + "\n" for line in lines)
            with self._path.open("ab") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())

    def correct(
        self, document: Document, layout: Layout, column: Column, name: str, cell: Cell
    ) -> None:
        """Keep a correction of one cell."""
        said = self._said.get(_key(document, layout, column), [])
        kept = [(record, cell if record == name else each) for record, each in said]
        self.put(document, layout, {column: kept or [(name, cell)]})

    def fail(self, document: Document, layout: Layout, cell: Cell) -> None:
        """Note why the missing columns of a document were not filled; nothing is kept of it."""
        for column in self.missing(document, layout):
            self._failed[_key(document, layout, column)] = cell

    def rows(self, document: Document, layout: Layout, info: DocumentInfo) -> list[Row]:
        """Return the rows of a document."""
        keys = {column.name: _key(document, layout, column) for column in layout.columns}
        failed = {name: self._failed.get(key) for name, key in keys.items()}
        said = {name: dict(self._said.get(key, [])) for name, key in keys.items()}
        records = dict.fromkeys(record for cells in said.values() for record in cells)
        if not records and any(failed.values()):
            records = {"": None}
        return [
            Row(
                info.id,
                info.full_title,
                info.source,
                {
                    name: cells.get(record) or failed[name] or Cell(reason=Reason.MISSING)
                    for name, cells in said.items()
                },
                record,
            )
            for record in records
        ]

    def _add(self, line: Mapping[str, Any]) -> None:
        self._said[line["key"]] = [(name, read_cell(cell)) for name, cell in line["cells"]]


def _key(document: Document, layout: Layout, column: Column) -> str:
    """Return what the cells of a column in a document depend on."""
    made = json.dumps([document.id, document.digest, layout.rows, column.key])
    return hashlib.sha256(made.encode()).hexdigest()[:32]
