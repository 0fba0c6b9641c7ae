"""Read the header of a GGUF file: its metadata, and the shapes of its tensors."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import SEEK_CUR
from pathlib import Path
from typing import Any, BinaryIO

from colligate.errors import UnknownModel, WeightsUnavailable

# Value types of the format, and how `struct` reads the fixed ones.
_FIXED = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_LONGEST_STRING = 1 << 20
_LONGEST_ARRAY = 1 << 16  # outside the vocabulary there are at most a few numbers per layer
_MOST_DIMENSIONS = 4


@dataclass(frozen=True)
class Header:
    """Facts of a GGUF file; None where it does not state them. `weights` is how many there are."""

    context_tokens: int | None
    kv_bytes_per_token: int | None
    weights: int
    metadata: Mapping[str, Any]


def read_header(path: Path) -> Header:
    """Read the metadata, without the vocabulary, and the tensors' shapes: a part of a second.

    UnknownModel if the file does not exist, WeightsUnavailable if it is not a readable GGUF file.
    """
    with _open(path) as stream:
        version, tensors, count = _unpack(stream, "IQQ")
        if version not in (2, 3):
            raise ValueError(f"GGUF version {version}")
        metadata: dict[str, Any] = {}
        for _ in range(count):
            key, (kind,) = _string(stream), _unpack(stream, "I")
            if key.startswith("tokenizer."):
                _skip(stream, kind)
            else:
                metadata[key] = _value(stream, kind)
        weights = sum(_read_size(stream) for _ in range(tensors))
        return Header(*_context_sizes(metadata), weights, metadata)


def _read_size(stream: BinaryIO) -> int:
    """Read what the header says of a tensor; return how many weights it has."""
    _name, (dimensions,) = _string(stream), _unpack(stream, "I")
    if dimensions > _MOST_DIMENSIONS:
        raise ValueError(f"a tensor of {dimensions} dimensions")
    shape = _unpack(stream, f"{dimensions}Q")
    _unpack(stream, "IQ")  # its type and place
    return math.prod(shape)


@contextmanager
def _open(path: Path) -> Iterator[BinaryIO]:
    """Open a GGUF file after its magic number, and say what is wrong if it cannot be read."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != b"GGUF":
                raise _unreadable(path, "it is not a GGUF file")
            yield stream
    except FileNotFoundError as error:
        what = f"no model at {path}"
        raise UnknownModel(what, "the file does not exist", "check the path after gguf:") from error
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    except (struct.error, ValueError, TypeError, OverflowError) as error:
        raise _unreadable(path, "its GGUF header is damaged") from error


def _unreadable(path: Path, why: str) -> WeightsUnavailable:
    return WeightsUnavailable(f"cannot load {path}", why, "check the path, or download it again")


def _context_sizes(metadata: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the trained context, and the bytes of a token's keys and values."""
    architecture = str(metadata.get("general.architecture", ""))

    def number(key: str) -> int:
        value = metadata.get(f"{architecture}.{key}", 0)
        # Some models give one number per layer.
        found = int(max(value) if isinstance(value, list) else value)
        if not 0 <= found < 1 << 32:
            raise ValueError(f"{key} is {found}")
        return found

    heads = number("attention.head_count")
    width = number("embedding_length") // heads if heads else 0
    key_width = number("attention.key_length") or width
    value_width = number("attention.value_length") or width
    kv_heads = number("attention.head_count_kv") or heads
    half_float = 2
    kv_bytes = number("block_count") * kv_heads * (key_width + value_width) * half_float
    return number("context_length") or None, kv_bytes or None


def _unpack(stream: BinaryIO, layout: str) -> tuple[Any, ...]:
    size = struct.calcsize(f"<{layout}")
    return struct.unpack(f"<{layout}", stream.read(size))


def _string(stream: BinaryIO) -> str:
    (length,) = _unpack(stream, "Q")
    if length > _LONGEST_STRING:
        raise ValueError(f"a string of {length} bytes")
    return stream.read(length).decode("utf-8")


def _value(stream: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _string(stream)
    if kind == _ARRAY:
        item, length = _unpack(stream, "IQ")
        if length > _LONGEST_ARRAY or item == _ARRAY:
            raise ValueError(f"an array of {length} values of type {item}")
        return [_value(stream, item) for _ in range(length)]
    if kind not in _FIXED:
        raise ValueError(f"value type {kind}")
    (value,) = _unpack(stream, _FIXED[kind])
    return value


def _skip(stream: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        (length,) = _unpack(stream, "Q")
        stream.seek(length, SEEK_CUR)
    elif kind == _ARRAY:
        item, length = _unpack(stream, "IQ")
        if item in _FIXED:
            stream.seek(length * struct.calcsize(f"<{_FIXED[item]}"), SEEK_CUR)
        elif item == _STRING:  # a vocabulary: reading is ten times as fast as seeking
            for _ in range(length):
                (size,) = _LENGTH.unpack(stream.read(_LENGTH.size))
                if size > _LONGEST_STRING:
                    raise ValueError(f"a string of {size} bytes")
                stream.read(size)
        else:
            raise ValueError(f"an array of type {item}")
    else:
        _value(stream, kind)
