"""Files of records, read one by one: JSON Lines, packed or not, or one JSON array."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

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
    return FaultyRecord(f"cannot read {place} of {path}", reason, "mend it or leave it out")


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
