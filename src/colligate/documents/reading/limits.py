"""Limits on one file: its size, what an archive may unpack to, and what reading it may take.

An office file is a zip archive. Before a parser sees it, every member is inflated here in
small pieces and counted, so the sizes that the archive declares are never trusted.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from colligate.errors import CorruptFile, EncryptedFile, TooLarge

_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one file; sizes in bytes.

    `text_bytes` bounds files read as text, `file_bytes` any file. In zip-based formats,
    `unpacked_bytes` bounds the unpacked size of all members, `ratio` the same in sizes of the
    archive itself (up to a mebibyte is always accepted), `members` their number. A document of
    more than `sections` sections keeps them only if they have text. With `ocr`, Tesseract's names
    of languages ("eng+deu"), scanned pages and pictures are read, which may take ten times as long;
    so may a `pdf` of "docling", which reads PDFs in the place of liteparse.
    """

    file_bytes: int = 512 * _MEBIBYTE
    text_bytes: int = 64 * _MEBIBYTE
    unpacked_bytes: int = 512 * _MEBIBYTE
    ratio: int = 200
    members: int = 20_000
    sections: int = 20_000
    ocr: str = ""
    pdf: str = ""

    def seconds(self, size: int) -> float:
        """Return how long reading a file of so many bytes may take."""
        return (60 + 10 * size / _MEBIBYTE) * (10 if self.ocr or self.pdf == "docling" else 1)

    def memory(self, size: int) -> int:
        """Return how many bytes of memory reading a file of so many bytes may take."""
        return min(4096 * _MEBIBYTE, max(900 * _MEBIBYTE, 100 * size))


def check_archive(data: bytes, name: str, limits: Limits) -> tuple[str, ...]:
    """Refuse a zip archive by its true unpacked size; return the names of its members."""
    allowance = min(limits.unpacked_bytes, max(_MEBIBYTE, limits.ratio * len(data)))
    names, _ = _inflate(data, name, limits, allowance, depth=0)
    return names


_NESTING = 3


def _inflate(
    data: bytes, name: str, limits: Limits, allowance: int, *, depth: int
) -> tuple[tuple[str, ...], int]:
    """Return the members' names and the bytes they unpack to, archives inside included."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.infolist()
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, struct.error) as error:
        why = f"its zip archive is damaged ({error})"
        raise CorruptFile(f"cannot read {name}", why, "fetch it again") from error
    if len(members) > limits.members:
        why = f"it packs {len(members):,} members and the limit is {limits.members:,}"
        raise TooLarge(f"cannot read {name}", why, "split it")
    used = 0
    for member in members:
        if member.flag_bits & 0x1:
            raise EncryptedFile(f"cannot read {name}", "it is encrypted", "remove its password")
        left = allowance - used
        try:
            size, nested = _inflate_member(data, member, left, keep=depth < _NESTING)
        except (zlib.error, struct.error, ValueError) as error:
            why = f"member {member.filename!r} is damaged ({error})"
            raise CorruptFile(f"cannot read {name}", why, "fetch it again") from error
        used += size
        if nested is not None and used <= allowance:
            with suppress(CorruptFile):  # it may only begin like an archive
                used += _inflate(nested, name, limits, allowance - used, depth=depth + 1)[1]
        if used > allowance:
            why = f"its {len(data):,} bytes unpack to more than {allowance:,}"
            raise TooLarge(f"cannot read {name}", why, "unpack it yourself and give the parts")
    return tuple(member.filename for member in members), used


_LOCAL_HEADER = struct.Struct("<4s5H3L2H")


def _inflate_member(
    data: bytes, member: zipfile.ZipInfo, allowance: int, *, keep: bool
) -> tuple[int, bytes | None]:
    """Return how many bytes a member unpacks to (at most just over `allowance`); a zip's bytes."""
    header = _LOCAL_HEADER.unpack_from(data, member.header_offset)
    start = member.header_offset + _LOCAL_HEADER.size + header[-2] + header[-1]
    packed = memoryview(data)[start : start + member.compress_size]
    if member.compress_type == zipfile.ZIP_STORED:
        is_archive = keep and bytes(packed[:4]) == b"PK\x03\x04"
        return len(packed), bytes(packed) if is_archive else None
    if member.compress_type != zipfile.ZIP_DEFLATED:
        raise ValueError(f"compression method {member.compress_type}")
    size, kept = 0, bytearray()
    for piece in _iter_inflated(packed):
        if keep and (kept or (size == 0 and piece.startswith(b"PK\x03\x04"))):
            kept += piece
        size += len(piece)
        if size > allowance:
            break
    return size, bytes(kept) if kept else None


_PIECE = 1 << 16


def _iter_inflated(packed: memoryview) -> Iterator[bytes]:
    """Yield the bytes a deflate stream unpacks to, in small pieces."""
    inflater = zlib.decompressobj(-zlib.MAX_WBITS)
    for at in range(0, len(packed), _PIECE):
        pending: bytes = bytes(packed[at : at + _PIECE])
        while pending and not inflater.eof:
            yield inflater.decompress(pending, _PIECE)
            pending = inflater.unconsumed_tail
    yield inflater.flush()
