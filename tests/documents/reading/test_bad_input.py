"""Files that cannot be read: each gets one line that says what, why and a hint."""

from __future__ import annotations

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.documents.reading import Limits, read_file
from colligate.errors import (
    ColligateError,
    CorruptFile,
    EncryptedFile,
    FileChanged,
    MissingPath,
    NoText,
    NotPermitted,
    ReadingError,
    TooLarge,
    UnsupportedFormat,
)


def archive(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", method) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return data.getvalue()


def refusal(path: Path, kind: type[ColligateError], limits: Limits = Limits()) -> str:  # noqa: B008
    """Read a file that must be refused; return the error's line."""
    with pytest.raises(kind) as caught:
        read_file(path, limits)
    assert type(caught.value) is kind
    line = str(caught.value)
    assert "\n" not in line
    assert str(path) in line
    assert caught.value.why or kind is MissingPath
    assert caught.value.hint
    return line


def test_missing(tmp_path: Path) -> None:
    refusal(tmp_path / "nope.txt", MissingPath)
    (tmp_path / "a.txt").write_text("x")
    refusal(tmp_path / "a.txt" / "under-a-file.txt", MissingPath)


def test_folders_devices_and_names_that_are_not_utf8(tmp_path: Path) -> None:
    assert "folder" in refusal(tmp_path, UnsupportedFormat)
    assert "regular file" in refusal(Path("/dev/zero"), UnsupportedFormat)
    assert "not UTF-8" in refusal(tmp_path / "caf\udce9.txt", ReadingError)


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.docx", "a.jsonl", "a.eml", "a.html", "a"])
def test_zero_bytes(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert "0 bytes" in refusal(tmp_path / name, NoText)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", " \n\t\n"),
        ("a.html", "<html><head><title>T</title></head><body></body></html>"),
        ("a.html", "<!-- nothing -->"),
        ("a.wiki", "{{stub}}\n[[Category:Empty]]"),
    ],
)
def test_no_words(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    refusal(tmp_path / name, NoText)


ODP = archive(
    {"mimetype": b"application/vnd.oasis.opendocument.presentation", "content.xml": b"<x/>"},
    zipfile.ZIP_STORED,
)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", bytes(range(256)) * 50, "looks binary"),
        ("a.txt", b"\x89PNG\r\n\x1a\n" + b"\x00" * 50, "PNG"),
        ("a.md", b"\x7fELF\x02\x01\x01" + b"\x00" * 50, "program"),
        ("a.txt", b"\x01\x02\x03\x04" * 50, "looks binary"),
        ("a.html", b"<html>\x00\x00" * 50, "looks binary"),
        ("a.zip", archive({"a.txt": b"words"}), "zip archive"),
        ("a.txt", archive({"a.txt": b"words"}), "zip archive"),
        ("a.gz", gzip.compress(b"words", mtime=0), "gzip"),
        ("a.odp", ODP, "save it as PDF"),
    ],
)
def test_binary_whatever_its_name(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    assert said in refusal(tmp_path / name, UnsupportedFormat)


WHOLE = archive({"word/document.xml": b"<w/>" * 100, "[Content_Types].xml": b"<Types/>"})
DAMAGED = bytearray(archive({"word/document.xml": bytes(range(256)) * 400}))
DAMAGED[200:260] = b"\xff" * 60


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.docx", b"just words"),
        ("a.pdf", b"just words"),
        ("a.doc", b"just words"),
        ("a.docx", WHOLE[: len(WHOLE) // 2]),
        ("a.docx", WHOLE),
        ("a.docx", bytes(DAMAGED)),
        ("a.xlsx", archive({"xl/workbook.xml": b"<oops"})),
        ("a.epub", archive({"META-INF/container.xml": b"<oops"})),
        ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600),
        ("a.ipynb", b"[" * 100_000),
        ("a.jsonl.gz", gzip.compress(b'{"id": "a", "text": "good"}' * 99, mtime=0)[:40]),
    ],
)
def test_corrupt(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    refusal(tmp_path / name, CorruptFile)


def test_encrypted_office_file(tmp_path: Path) -> None:
    data = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600
    data += "EncryptedPackage".encode("utf-16-le") + b"\x00" * 600
    (tmp_path / "a.docx").write_bytes(data)
    assert "remove its password" in refusal(tmp_path / "a.docx", EncryptedFile)


def test_encrypted_member(tmp_path: Path) -> None:
    data = bytearray(archive({"word/document.xml": b"<w/>"}))
    data[data.index(b"PK\x03\x04") + 6] |= 1
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.docx").write_bytes(data)
    refusal(tmp_path / "a.docx", EncryptedFile)


def lying(data: bytes) -> bytes:
    """An archive that declares ten bytes, whatever its member unpacks to."""
    made = bytearray(data)
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", made, made.index(mark) + place, 10)
    return bytes(made)


ZEROS = b"0" * (40 << 20)


@pytest.mark.parametrize(
    "bomb",
    [
        *(
            lambda name=name: archive({name: ZEROS})
            for name in ("word/document.xml", "xl/workbook.xml", "META-INF/container.xml")
        ),
        lambda: lying(archive({"word/document.xml": ZEROS})),
        lambda: archive({"word/x.xml": b"<w/>", "a.zip": archive({"b": archive({"a": ZEROS})})}),
    ],
)
def test_zip_bombs(tmp_path: Path, bomb: Callable[[], bytes]) -> None:
    (tmp_path / "a.docx").write_bytes(bomb())
    assert "unpack to more than" in refusal(tmp_path / "a.docx", TooLarge)


def test_members_that_share_their_bytes_are_counted_each(tmp_path: Path) -> None:
    packed = archive({f"word/{i:04}": b"0" for i in range(300)} | {"word/big": b"0" * (1 << 20)})
    data = bytearray(packed)
    with zipfile.ZipFile(io.BytesIO(packed)) as opened:
        big = opened.getinfo("word/big")
    at = 0
    for _ in range(300):  # every entry of the directory points at the big member
        at = data.index(b"PK\x01\x02", at + 1) if at else data.index(b"PK\x01\x02")
        struct.pack_into("<H", data, at + 10, big.compress_type)
        struct.pack_into("<III", data, at + 16, big.CRC, big.compress_size, big.file_size)
        struct.pack_into("<I", data, at + 42, big.header_offset)
    (tmp_path / "a.docx").write_bytes(data)
    refusal(tmp_path / "a.docx", TooLarge)


def test_too_many_members(tmp_path: Path) -> None:
    (tmp_path / "a.docx").write_bytes(archive({f"word/{i}": b"" for i in range(30)}))
    said = refusal(tmp_path / "a.docx", TooLarge, Limits(members=20))
    assert "30 members" in said


def test_gzip_bomb(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b" " * (8 << 20)))
    refusal(tmp_path / "a.jsonl.gz", TooLarge, Limits(unpacked_bytes=1 << 20))


ENTITIES = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>" + "".join(
    f"<!ENTITY {chr(98 + i)} '{f'&{chr(97 + i)};' * 10}'>" for i in range(12)
)


@pytest.mark.parametrize(
    ("name", "member", "content"),
    [
        ("a.docx", "word/document.xml", "<w:document xmlns:w='w'>&m;</w:document>"),
        ("a.epub", "META-INF/container.xml", "<container>&m;</container>"),
        ("a.odt", "content.xml", "<office>&m;</office>"),
    ],
)
def test_entities_that_expand_without_end(
    tmp_path: Path, name: str, member: str, content: str
) -> None:
    xml = f"<?xml version='1.0'?>{ENTITIES}]>{content}"
    (tmp_path / name).write_bytes(archive({member: xml.encode()}))
    refusal(tmp_path / name, CorruptFile)


def test_entities_in_html_stay_short(tmp_path: Path) -> None:
    (tmp_path / "a.xhtml").write_text(f"{ENTITIES}]><html><body><p>x &m; y</p></body></html>")
    (document,) = read_file(tmp_path / "a.xhtml").documents
    assert len(document.text) < 5_000


@pytest.mark.parametrize("content", ["<div>" * 200_000 + "x", "<ul><li>" * 100_000 + "x"])
def test_html_that_nests_without_end(tmp_path: Path, content: str) -> None:
    (tmp_path / "a.html").write_text(content)
    assert "nest" in refusal(tmp_path / "a.html", CorruptFile)


def test_wikitext_whose_tags_never_close(tmp_path: Path) -> None:
    (tmp_path / "a.wiki").write_text("<ref>" * 100_000)
    assert "never close" in refusal(tmp_path / "a.wiki", CorruptFile)


def test_a_text_of_100_mb_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.truncate(100_000_000)  # a hole: it takes no room on the disk
        file.write(b"x")
    # As NUL bytes it is binary; as text it is too large.
    assert "binary" in refusal(path, UnsupportedFormat)
    path.write_bytes(b"word " * 20_000_000)
    said = refusal(path, TooLarge)
    assert "100,000,000 bytes" in said
    assert "67,108,864" in said
    assert "split it" in said


def test_a_file_over_the_limit_is_not_loaded(tmp_path: Path) -> None:
    path = tmp_path / "a.pdf"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "split it" in refusal(path, TooLarge)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("words")

    def refuse(self: Path, *_: Any, **__: Any) -> None:  # as the system does for anyone but root
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "open", refuse)
    assert "permission denied" in refusal(path, NotPermitted)


def changing(monkeypatch: pytest.MonkeyPatch, path: Path, times: int) -> list[int]:
    """Let the file grow as it is opened, so many times."""
    opened: list[int] = []
    really_open = Path.open

    def growing(self: Path, *args: Any, **kwargs: Any) -> Any:
        if self == path:
            opened.append(1)
            if len(opened) <= times:
                with really_open(path, "ab") as file:
                    file.write(b" more")
        return really_open(self, *args, **kwargs)

    monkeypatch.setattr(Path, "open", growing)
    return opened


def test_a_file_that_changes_once_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("words")
    opened = changing(monkeypatch, path, times=1)
    assert read_file(path).documents[0].text == "words more"
    assert len(opened) == 2


def test_a_file_that_keeps_changing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("words")
    changing(monkeypatch, path, times=9)
    assert "try again" in refusal(path, FileChanged)


def test_a_file_that_vanishes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("words")
    really_open = Path.open

    def vanishing(self: Path, *args: Any, **kwargs: Any) -> Any:
        file = really_open(self, *args, **kwargs)
        if self == path:
            self.unlink()
        return file

    monkeypatch.setattr(Path, "open", vanishing)
    refusal(path, MissingPath)
