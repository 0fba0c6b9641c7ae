"""A user's own questions: a table (CSV) or JSON Lines, asked of documents in a folder.

Columns: `question`; and if wanted `id`, `answer` (one), `answers` (several, any of which is right),
`documents` (names of files; without them the whole folder is asked), `gold` (those of them that
hold the answer), `answerable` (no where the documents do not answer it). In a table several values
of one cell are separated by "|"; in JSON they are lists.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from colligate.errors import MissingPath
from colligate.lab.bench.datasets import records
from colligate.lab.bench.question import Question

TABLES = (".csv", ".tsv")
_SEPARATOR = "|"


def _split(value: Any) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split(_SEPARATOR) if part.strip()]
    return [] if value is None else value


def _default_to_yes(value: Any) -> Any:
    value = value.strip() if isinstance(value, str) else value
    return True if value is None or value == "" else value


_Several = Annotated[tuple[str, ...], BeforeValidator(_split)]


class _Record(records.RecordModel):
    question: str
    id: records.NullableText = ""
    answer: records.NullableText = ""
    answers: _Several = ()
    documents: _Several = ()
    gold: _Several = ()
    answerable: Annotated[bool, BeforeValidator(_default_to_yes)] = True


def _read(path: Path) -> Iterator[Question]:
    if path.suffix.lower() in TABLES:
        return _read_table(path)
    return records.parse_questions(path, _Record, _make_question)


def _make_question(record: _Record) -> Question:
    documents = records.make_candidates((name, "", "") for name in record.documents)
    gold = records.unique(record.gold)
    if stray := [name for name in gold if record.documents and name not in record.documents]:
        raise ValueError(f"gold {stray[0]!r} is not among its documents")
    answers = records.unique([record.answer, *record.answers])
    if answers and not record.answerable:
        raise ValueError("it has an answer and is marked as not answerable")
    return Question(
        record.id,
        record.question,
        answers=answers,
        documents=documents,
        gold=gold,
        answerable=record.answerable,
        meta=record.rest,
    )


def _read_table(path: Path) -> Iterator[Question]:
    if not path.is_file():
        raise MissingPath(f"cannot read {path}", "the file does not exist", "check the path")
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise records.record_error(
            path, f"line {line}", "it is not UTF-8; save it as such"
        ) from None
    ids, number, stream = records.QuestionIds(), 1, io.StringIO(text, newline="")
    # Spreadsheets do not agree on the separator: it is the most frequent one of the first line.
    # In a .tsv file a tab is one wherever it is, and cells may hold commas.
    first, separators = stream.readline(), ",;\t"
    if path.suffix.lower() == ".tsv":
        separators = "\t" if "\t" in first else "\t,;"
    delimiter = max(separators, key=first.count)
    stream.seek(0)
    rows = csv.reader(stream, delimiter=delimiter, strict=True)
    try:
        names = _parse_header(next(rows, []))
        for row in rows:
            number = rows.line_num
            if any(cell.strip() for cell in row):
                yield ids.assign(_make_question(_parse_row(names, row)))
    except csv.Error as error:
        why = f"it is not a table ({error})"
        raise records.record_error(path, f"line {rows.line_num}", why) from None
    except ValueError as error:
        raise records.record_error(path, f"line {number}", str(error)) from None


def _parse_header(header: list[str]) -> list[str]:
    """Return the names of the columns, or an empty list for an empty file."""
    names = [re.sub(r"\W+", "_", name.strip().lower()) for name in header]
    if twice := next((name for name in names if name and names.count(name) > 1), None):
        raise ValueError(f"two columns are called {twice}")
    if names and "question" not in names:
        raise ValueError(f"no column is called question; there are {', '.join(names)}")
    return names


def _parse_row(names: list[str], row: list[str]) -> _Record:
    if len(row) != len(names):
        raise ValueError(f"it has {len(row)} cells and the first line {len(names)}")
    return records.validate(_Record, dict(zip(names, row, strict=True)))


def _fits(record: records.JsonObject) -> bool:
    # Other fields may be gold that this format would pass over; `--format own` takes them anyway.
    return "question" in record and record.keys() <= _Record.model_fields.keys()


OWN = records.DatasetFormat("own", _read, _fits)
