"""Files of records, and from a record to a question."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import io
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from colligate.documents.document import digest
from colligate.documents.reading.records import (
    BYTE_ORDER_MARK,
    GZIP_MAGIC,
    parse_json,
    parse_object,
)
from colligate.errors import FaultyRecord, MissingPath
from colligate.lab.bench.question import Candidate, Question

JsonObject = dict[str, Any]
TABLES = (".csv", ".tsv")


@dataclass(frozen=True)
class DatasetFormat:
    """How a data set is published.

    `read` gives the questions of a file, each with an id of its own (`parse_questions`). `fits`
    tells from a file's first record whether it is of this format. Other packages register theirs
    under the entry-point group `colligate.datasets`.
    """

    name: str
    read: Callable[[Path], Iterator[Question]]
    fits: Callable[[JsonObject], bool] = lambda record: False


def has_fields(*names: str) -> Callable[[JsonObject], bool]:
    """Return a test whether a record has all these fields."""
    return lambda record: all(name in record for name in names)


def load_records(path: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield the records of a file, each with its place in it ("line 3", "record 3").

    The file holds JSON Lines or one JSON array, packed by gzip or not; its first bytes tell which,
    not its name. Blank lines are passed over. Lines are read one by one. An array is read whole:
    the largest that is published, HotpotQA's training set, takes about 2 GB of memory. By their
    names alone, `TABLES` are tables.
    """
    if not path.is_file():
        raise MissingPath(f"cannot read {path}", "the file does not exist", "check the path")
    if path.suffix.lower() in TABLES:
        yield from _load_table(path)
        return
    with path.open("rb") as file:
        packed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    place = "line 1"
    with gzip.open(path, "rb") if packed else path.open("rb") as stream:
        try:
            head: bytes = stream.peek(1 << 10)
            if head.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"["):
                place = "the array"
                for number, value in enumerate(parse_json(stream.read()), 1):
                    place = f"record {number}"
                    if not isinstance(value, dict):
                        raise ValueError("it is not a JSON object")
                    yield place, value
                return
            # Split at b"\n" alone: a JSON string may hold other line separators.
            for number, line in enumerate(stream, 1):
                place = f"line {number}"
                if line.strip().removeprefix(BYTE_ORDER_MARK):
                    yield place, parse_object(line)
                place = f"line {number + 1}"
        except EOFError:
            why = "the file ends in the middle of its gzip archive"
            raise record_error(path, place, why) from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise record_error(path, place, f"its gzip archive is damaged ({error})") from None
        except ValueError as error:
            raise record_error(path, place, str(error)) from None


def _load_table(path: Path) -> Iterator[tuple[str, JsonObject]]:
    """Yield the rows of a table; names of columns are in small letters, with "_" for blanks."""
    data = path.read_bytes()
    try:
        stream = io.StringIO(data.decode("utf-8-sig"), newline="")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise record_error(path, f"line {line}", "it is not UTF-8; save it as such") from None
    # Spreadsheets do not agree on the separator: it is the most frequent one of the first line.
    # In a .tsv file a tab is one wherever it is, and cells may hold commas.
    first, separators = stream.readline(), ",;\t"
    if path.suffix.lower() == ".tsv":
        separators = "\t" if "\t" in first else "\t,;"
    stream.seek(0)
    rows = csv.reader(stream, delimiter=max(separators, key=first.count), strict=True)
    try:
        names = [re.sub(r"\W+", "_", name.strip().lower()) for name in next(rows, [])]
        if twice := next((name for name in names if name and names.count(name) > 1), None):
            raise ValueError(f"two columns are called {twice}")
        for row in rows:
            if any(cell.strip() for cell in row):
                if len(row) != len(names):
                    raise ValueError(f"it has {len(row)} cells and the first line {len(names)}")
                yield f"line {rows.line_num}", dict(zip(names, row, strict=True))
    except (csv.Error, ValueError) as error:
        why = f"it is not a table ({error})" if isinstance(error, csv.Error) else str(error)
        raise record_error(path, f"line {rows.line_num}", why) from None


def record_error(path: Path, place: str, reason: str) -> FaultyRecord:
    """Return the error that names a file, the place in it and the reason."""
    return FaultyRecord(f"cannot read {place} of {path}", reason, "fix it or leave it out")


class RecordModel(BaseModel):
    """The fields of a record that are understood; the others become the question's `meta`."""

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True)

    @property
    def rest(self) -> dict[str, Any]:
        """The fields that the model does not name."""
        return dict(self.model_extra or {})


class QuestionRecord(RecordModel):
    """A record that makes its question."""

    def make(self) -> Question:
        raise NotImplementedError


NullableText = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]
"""A string that a record may give as null."""

M = TypeVar("M", bound=RecordModel)
T = TypeVar("T")


def parse_questions(
    path: Path, model: type[M], make: Callable[[M], Question]
) -> Iterator[Question]:
    """Yield the question that `make` returns for each record; without an id it gets one."""
    ids = QuestionIds()
    return parse_records(path, lambda record: ids.assign(make(validate(model, record))))


def parse_records(path: Path, parse: Callable[[JsonObject], T]) -> Iterator[T]:
    """Yield what `parse` returns for each record; its ValueError gets the record's place."""
    for place, record in load_records(path):
        try:
            found = parse(record)
        except ValueError as error:
            raise record_error(path, place, str(error)) from None
        yield found


def validate(model: type[M], record: JsonObject) -> M:
    """Return the record as a model."""
    try:
        return model.model_validate(record)
    except ValidationError as error:
        raise ValueError(first_fault(error)) from None


def first_fault(error: ValidationError) -> str:
    """Return the first fault of a record in one line, with the field's name."""
    first = error.errors(include_url=False, include_context=False)[0]
    field = ".".join(str(part) for part in first["loc"])
    where = f"field {field!r}: " if field else ""
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}{first['msg'].lower().removeprefix('value error, ')}{more}"


def make_format(
    name: str, model: type[M], make: Callable[[M], Question], fits: Callable[[JsonObject], bool]
) -> DatasetFormat:
    """Return the format whose files hold records of one model, each a question."""
    return DatasetFormat(name, lambda path: parse_questions(path, model, make), fits)


def format_of(name: str, model: type[QuestionRecord], fields: str) -> DatasetFormat:
    """Return such a format; records with these fields, separated by blanks, are of it."""
    return make_format(name, model, model.make, has_fields(*fields.split()))


class QuestionIds:
    """Gives each question of a file an id, and refuses an id that comes twice."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._made: Counter[str] = Counter()

    def assign(self, question: Question) -> Question:
        """Return the question with an id; made ids of the same words end in "-2", "-3"."""
        if not question.text.strip():
            raise ValueError("the question is empty")
        if not question.id:
            made = digest(question.text)[:12]
            self._made[made] += 1
            time = self._made[made]
            return dataclasses.replace(question, id=made if time == 1 else f"{made}-{time}")
        if question.id in self._given:
            raise ValueError(f"the id {question.id!r} came before")
        self._given.add(question.id)
        return question


def make_candidates(documents: Iterable[tuple[str, str, str]]) -> tuple[Candidate, ...]:
    """Return the documents of a record, given as (id, title, text), in their order.

    One without an id gets one made of its words, so that a paragraph is the same document in all
    questions. The same paragraph twice in a record becomes one.
    """
    found: dict[str, Candidate] = {}
    for id_, title, text in documents:
        name = id_ or make_id(title, text)
        if name not in found:
            found[name] = Candidate(name, title, text)
        elif id_:
            raise ValueError(f"two of its documents have the id {id_!r}")
    return tuple(found.values())


def make_id(title: str, text: str) -> str:
    """Return the id of a document that its publishers gave none."""
    return digest(f"{title}\n{text}")[:16]


def unique(values: Iterable[str]) -> tuple[str, ...]:
    """Return the values that are not blank, each once, in order."""
    return tuple(dict.fromkeys(value for value in values if value.strip()))
