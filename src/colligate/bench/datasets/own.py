"""A user's own questions: a table (CSV) or JSON Lines, asked of documents in a folder.

Columns: `question`; and if wanted `id`, `answer` (one), `answers` (several, any of which will do),
`documents` (names of files; without them the whole folder is asked), `gold` (those of them that
hold the answer), `answerable` (no where the documents do not answer it). In a table several values
of one cell stand apart by "|"; in JSON they are lists.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from colligate.bench.datasets.reading import (
    Numbered,
    Shape,
    Text,
    candidates,
    distinct,
    faulty,
    parsed,
    understood,
)
from colligate.bench.question import Question
from colligate.errors import MissingPath

TABLES = (".csv", ".tsv")
_SEVERAL = "|"


def _several(value: Any) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split(_SEVERAL) if part.strip()]
    return [] if value is None else value


def _yes_if_unsaid(value: Any) -> Any:
    value = value.strip() if isinstance(value, str) else value
    return True if value is None or value == "" else value


Several = Annotated[tuple[str, ...], BeforeValidator(_several)]


class _Record(Shape):
    question: str
    id: Text = ""
    answer: Text = ""
    answers: Several = ()
    documents: Several = ()
    gold: Several = ()
    answerable: Annotated[bool, BeforeValidator(_yes_if_unsaid)] = True


COLUMNS = frozenset(_Record.model_fields)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a table or a file of records.

    Raises:
        MissingPath: if there is no such file.
        FaultyRecord: if a row or a record is wrong or cut off.
    """
    return _table(path) if path.suffix.lower() in TABLES else parsed(path, _Record, _question)


def _question(record: _Record) -> Question:
    documents = candidates((name, "", "") for name in record.documents)
    gold = distinct(record.gold)
    if stray := [name for name in gold if record.documents and name not in record.documents]:
        raise ValueError(f"gold {stray[0]!r} is not among its documents")
    answers = distinct([record.answer, *record.answers])
    if answers and not record.answerable:
        raise ValueError("it has an answer and is said not to be answerable")
    return Question(
        record.id,
        record.question,
        answers=answers,
        documents=documents,
        gold=gold,
        answerable=record.answerable,
        meta=record.rest,
    )


def _table(path: Path) -> Iterator[Question]:
    if not path.is_file():
        raise MissingPath(f"cannot read {path}", "there is no such file", "check the path")
    numbered, number = Numbered(), 1
    with path.open(encoding="utf-8-sig", newline="") as stream:
        try:
            header = stream.readline()
            stream.seek(0)
            rows = csv.reader(stream, delimiter=_delimiter(header), strict=True)
            names = _columns(next(rows, []))
            for row in rows:
                number = rows.line_num
                if any(cell.strip() for cell in row):
                    record = _understood(names, row)
                    yield numbered(_question(record))
        except csv.Error as error:
            raise faulty(path, f"line {rows.line_num}", f"it is not a table ({error})") from None
        except UnicodeDecodeError:
            place = f"line {_undecodable(path)}"
            raise faulty(path, place, "it is not UTF-8, which spreadsheets can save") from None
        except ValueError as error:
            raise faulty(path, f"line {number}", str(error)) from None


def _columns(header: list[str]) -> list[str]:
    """The names of the columns; of a table without a line none.

    Raises:
        ValueError: if two are called alike, or none is the question.
    """
    names = [re.sub(r"\W+", "_", name.strip().lower()) for name in header]
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise ValueError(f"two columns are called {twice}")
    if names and "question" not in names:
        raise ValueError(f"no column is called question; there are {', '.join(names)}")
    return names


def _undecodable(path: Path) -> int:
    """The number of the first line that is not UTF-8."""
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError:
                return number
    return number


def _understood(names: list[str], row: list[str]) -> _Record:
    if len(row) != len(names):
        raise ValueError(f"it has {len(row)} cells and the first line {len(names)}")
    return understood(_Record, dict(zip(names, row, strict=True)))


def _delimiter(header: str) -> str:
    """What stands between the names of the columns most often: spreadsheets do not agree."""
    return max(",;\t", key=header.count)
