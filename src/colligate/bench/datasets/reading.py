"""Files of records, read one by one: JSON Lines, packed or not, or one JSON array."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import heapq
import io
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from colligate.bench.question import Candidate, Question
from colligate.documents.document import digest
from colligate.errors import FaultyRecord, MissingPath

Record = dict[str, Any]
T = TypeVar("T")
_Stream = gzip.GzipFile | io.BufferedReader

_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"
_PIECE = 1 << 20  # characters of an array read at once
_BLANKS = re.compile(r"[ \t\r\n]*")
_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_DECODER = json.JSONDecoder()


def lines(path: Path) -> Iterator[tuple[int, Record]]:
    """Each record with its number: of its line, or in an array of its place, from 1.

    What the file is, packed or an array, is told from its first bytes, whatever it is called.
    Blank lines are passed over. No more is in memory than a record and the piece it stands in.

    Raises:
        MissingPath: if there is no such file.
        FaultyRecord: if a record is no JSON object, or the file is cut off or damaged.
    """
    if not path.is_file():
        raise MissingPath(f"cannot read {path}", "there is no such file", "check the path")
    with _opened(path) as stream:
        if _is_array(path, stream):
            yield from _array(path, stream)
        else:
            yield from _lines(path, stream)


def faulty(path: Path, place: str, reason: str) -> FaultyRecord:
    """The error that names the file, the place in it ("line 3") and the reason."""
    return FaultyRecord(f"cannot read {place} of {path}", reason, "fix it or leave it out")


def place_of(path: Path, number: int) -> str:
    """How the number of a record of `lines` is said: nobody counts the lines of an array."""
    with _opened(path) as stream:
        return f"record {number}" if _is_array(path, stream) else f"line {number}"


def _opened(path: Path) -> _Stream:
    with path.open("rb") as stream:
        packed = stream.read(len(_GZIP)) == _GZIP
    return gzip.open(path, "rb") if packed else path.open("rb")


def _is_array(path: Path, stream: _Stream) -> bool:
    head: bytes = _unpacked(path, "line 1", lambda: stream.peek(1 << 10))
    return head.removeprefix(_BOM).lstrip().startswith(b"[")


def _unpacked(path: Path, place: str, read: Callable[[], T]) -> T:
    """What `read` gives, as far as the archive holds."""
    try:
        return read()
    except EOFError:
        raise faulty(path, place, "the file ends in the middle of its gzip archive") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise faulty(path, place, f"its gzip archive is damaged ({error})") from None


def _lines(path: Path, stream: _Stream) -> Iterator[tuple[int, Record]]:
    number = 0
    # Split at b"\n" alone: a JSON string may hold other line separators.
    while line := _unpacked(path, f"line {number + 1}", stream.readline):
        number += 1
        if number == 1:
            line = line.removeprefix(_BOM)
        if line.strip():
            yield number, _record(path, f"line {number}", partial(_loads, line))


def _array(path: Path, stream: _Stream) -> Iterator[tuple[int, Record]]:
    text = io.TextIOWrapper(stream, encoding="utf-8-sig")
    values = _values(text.read)
    number = 0
    try:
        while True:
            number += 1
            record = _record(path, f"record {number}", partial(next, values, _END))
            if record is _END:
                return
            yield number, record
    finally:
        text.detach()  # the stream is closed by who opened it


_END: Record = {}


def _record(path: Path, place: str, read: Callable[[], Any]) -> Record:
    """What `read` gives, if it is an object."""
    try:
        value = _unpacked(path, place, read)
    except UnicodeDecodeError:
        raise faulty(path, place, "it is not UTF-8") from None
    except RecursionError:
        raise faulty(path, place, "its JSON is nested too deeply") from None
    except ValueError as error:
        raise faulty(path, place, f"it is not JSON ({error})") from None
    if not isinstance(value, dict):
        raise faulty(path, place, "it is not a JSON object")
    return value


def _loads(line: bytes) -> Any:
    text = line.decode()
    value = json.loads(text)
    return _writable(value) if _ESCAPED_SURROGATE.search(text) else value


def _writable(value: Any) -> Any:
    """The value without halves of surrogate pairs, which JSON can escape and nothing can write."""
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _values(read: Callable[[int], str]) -> Iterator[Any]:
    """The values of an array.

    Raises:
        ValueError: saying what is wrong with it.
    """
    window = _Window(read)
    window.skip("[")
    if window.mark() != "]":
        yield window.value()
        while window.mark() == ",":
            window.skip(",")
            yield window.value()
    window.skip("]")
    if window.mark():
        raise ValueError("more stands after the end of the array")


class _Window:
    """The part of a text that is being read: from the end of the last value on."""

    def __init__(self, read: Callable[[int], str]) -> None:
        self._read = read
        self._text, self._at = "", 0

    def mark(self) -> str:
        """The next character that is not blank, without passing it; empty at the end."""
        while True:
            blanks = _BLANKS.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._grow():
                return ""

    def skip(self, mark: str) -> None:
        """Pass over the mark that must stand here."""
        if (found := self.mark()) != mark:
            raise ValueError(f"{found!r} instead of {mark!r}" if found else "the array is cut off")
        self._at += 1

    def value(self) -> Any:
        """The value that begins here."""
        self.mark()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if not self._cut(error):
                    raise
                if not self._grow():
                    raise ValueError("the array is cut off") from None
            else:
                escaped = _ESCAPED_SURROGATE.search(self._text, self._at, end)
                self._at = end
                return _writable(value) if escaped else value

    def _cut(self, error: json.JSONDecodeError) -> bool:
        """Whether the value may be whole once more is read: a string, or a word at the end."""
        return error.msg.startswith("Unterminated") or error.pos > len(self._text) - 16

    def _grow(self) -> bool:
        """Read on; twice as much each time, so a long value is not parsed again too often."""
        rest = self._text[self._at :]
        piece = self._read(max(_PIECE, len(rest)))
        self._text, self._at = rest + piece, 0
        return bool(piece)


# From a record as its publishers give it to a question.


class Shape(BaseModel):
    """The fields of a record that are understood; the others become the question's `meta`."""

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True)

    @property
    def rest(self) -> dict[str, Any]:
        """The fields that are not among the shape's own."""
        return dict(self.model_extra or {})


S = TypeVar("S", bound=Shape)

# A string that may be null.
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


def parsed(path: Path, shape: type[S], question: Callable[[S], Question]) -> Iterator[Question]:
    """The questions of a file of records of one shape.

    A question without an id of its own gets one made of its text.

    Raises:
        FaultyRecord: if a record lacks a field, or has an id that stood before. `question`
            raises ValueError to say what else is wrong with one.
    """
    numbered = Numbered()

    def whole(record: Record) -> Question:
        return numbered(question(understood(shape, record)))

    return read_each(path, whole)


def read_each(path: Path, read: Callable[[Record], T]) -> Iterator[T]:
    """What `read` makes of each record; where it raises ValueError the place is told.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    for number, record in lines(path):
        try:
            found = read(record)
        except ValueError as error:
            raise faulty(path, place_of(path, number), str(error)) from None
        yield found


def understood(shape: type[S], record: Record) -> S:
    """The record as that shape.

    Raises:
        ValueError: saying which field is missing or wrong.
    """
    try:
        return shape.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ValueError(f"field {field!r}: {first['msg'].lower()}{more}") from None


class Numbered:
    """Sees to it that each question of a file has an id, and its own."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._made: Counter[str] = Counter()

    def __call__(self, question: Question) -> Question:
        """The question; made ids of the same words are told apart by "-2", "-3".

        Raises:
            ValueError: if its id stood before.
        """
        if not question.text.strip():
            raise ValueError("the question is empty")
        if not question.id:
            made = digest(question.text)[:12]
            self._made[made] += 1
            time = self._made[made]
            return dataclasses.replace(question, id=made if time == 1 else f"{made}-{time}")
        if question.id in self._given:
            raise ValueError(f"the id {question.id!r} stood before")
        self._given.add(question.id)
        return question


def candidates(documents: Iterable[tuple[str, str, str]]) -> tuple[Candidate, ...]:
    """The documents of a record, (id, title, text) each, in their order.

    One without an id gets one made of its words, so that a paragraph is the same document in all
    questions. Where a record has the very same paragraph twice it is there once.

    Raises:
        ValueError: if two have the same id.
    """
    found: dict[str, Candidate] = {}
    for id_, title, text in documents:
        name = id_ or made_id(title, text)
        if name not in found:
            found[name] = Candidate(name, title, text)
        elif id_:
            raise ValueError(f"two of its documents have the id {id_!r}")
    return tuple(found.values())


def made_id(title: str, text: str) -> str:
    """The id of a document that its publishers gave none."""
    return digest(f"{title}\n{text}")[:16]


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """The values that are not blank, each once, in order."""
    return tuple(dict.fromkeys(value for value in values if value.strip()))


# Some of a data set's questions, the same ones each time.


class HasId(Protocol):
    """A question, or a document."""

    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=HasId)


def some(questions: Iterable[Item], limit: int | None, seed: int) -> list[Item]:
    """At most `limit` questions, drawn by hashes of seed and id, in the order of these.

    So they do not depend on the file's order, files with the same ids give the same questions,
    and the first n of a larger limit are those of the limit n. No more than `limit` are held.
    """

    def drawn(question: Item) -> bytes:
        return hashlib.sha256(f"{seed}\n{question.id}".encode("utf-8", "surrogatepass")).digest()

    if limit is None:
        return sorted(questions, key=drawn)
    return heapq.nsmallest(limit, questions, key=drawn)
