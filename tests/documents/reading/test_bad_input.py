"""Files that cannot be read: each gets one line that says what, why and a hint."""

import gzip
import io
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.documents.chunking import Structural
from colligate.documents.reading import Limits, find_files, read_file
from colligate.errors import (
    ColligateError,
    CorruptFile,
    EncryptedFile,
    MissingPath,
    NoText,
    ReadingError,
    TooLarge,
    UnsupportedFormat,
)
from support.documents import pack, write_and_read


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


@pytest.mark.posix
def test_what_is_no_file(tmp_path):
    refusal(tmp_path / "nope.txt", MissingPath)
    (tmp_path / "a.txt").write_text("x")
    refusal(tmp_path / "a.txt" / "under-a-file.txt", MissingPath)
    assert "folder" in refusal(tmp_path, UnsupportedFormat)
    assert "regular file" in refusal(Path("/dev/zero"), UnsupportedFormat)
    assert "not UTF-8" in refusal(tmp_path / "caf\udce9.txt", ReadingError)


OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"\x00" * 600
WHOLE = pack({"word/document.xml": b"<w/>" * 100, "[Content_Types].xml": b"<Types/>"})
DAMAGED = bytearray(pack({"word/document.xml": bytes(range(256)) * 400}))
DAMAGED[200:260] = b"\xff" * 60
LOCKED = bytearray(pack({"word/document.xml": b"<w/>"}))
LOCKED[LOCKED.index(b"PK\x03\x04") + 6] |= 1
LOCKED[LOCKED.index(b"PK\x01\x02") + 8] |= 1
ODP = pack(
    {"mimetype": b"application/vnd.oasis.opendocument.presentation", "content.xml": b"<x/>"},
    zipfile.ZIP_STORED,
)
ENTITIES = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>" + "".join(
    f"<!ENTITY {chr(98 + i)} '{f'&{chr(97 + i)};' * 10}'>" for i in range(12)
)


def expanding(member: str, content: str) -> bytes:
    return pack({member: f"<?xml version='1.0'?>{ENTITIES}]>{content}".encode()})


@pytest.mark.parametrize(
    ("kind", "said", "name", "content"),
    [
        *(
            (NoText, "0 bytes", name, b"")
            for name in ("a.txt", "a.md", "a.docx", "a.jsonl", "a.eml", "a.html", "a")
        ),
        (NoText, "blanks", "a.txt", b" \n\t\n"),
        (NoText, "no text", "a.html", b"<html><head><title>T</title></head><body></body></html>"),
        (NoText, "no text", "a.html", b"<!-- nothing -->"),
        (NoText, "no text", "a.wiki", b"{{stub}}\n[[Category:Empty]]"),
        # binary, whatever its name
        (UnsupportedFormat, "not text", "a.txt", bytes(range(256)) * 50),
        (UnsupportedFormat, "not text", "a.txt", b"\x01\x02\x03\x04" * 50),
        (UnsupportedFormat, "not text", "a.html", b"<html>\x00\x00" * 50),
        (UnsupportedFormat, "PNG", "a.txt", b"\x89PNG\r\n\x1a\n" + b"\x00" * 50),
        (UnsupportedFormat, "zip archive", "a.zip", pack({"a.txt": b"words"})),
        (UnsupportedFormat, "zip archive", "a.txt", pack({"a.txt": b"words"})),
        (UnsupportedFormat, "binary data", "a.gz", gzip.compress(b"words", mtime=0)),
        (UnsupportedFormat, "save it as PDF", "a.odp", ODP),
        # damaged, or not what its name promises
        (CorruptFile, "not .docx", "a.docx", b"just words"),
        (CorruptFile, "not .pdf", "a.pdf", b"just words"),
        (CorruptFile, "not .doc", "a.doc", b"just words"),
        (CorruptFile, "damaged", "a.docx", WHOLE[: len(WHOLE) // 2]),
        (CorruptFile, "damaged", "a.docx", WHOLE),
        (CorruptFile, "damaged", "a.docx", bytes(DAMAGED)),
        (CorruptFile, "", "a.xlsx", pack({"xl/workbook.xml": b"<oops"})),
        (CorruptFile, "", "a.epub", pack({"META-INF/container.xml": b"<oops"})),
        (CorruptFile, "", "a.xls", OLE),
        (CorruptFile, "", "a.ipynb", b"[" * 100_000),
        (CorruptFile, "malformed", "a.eml", b"To: a@b, " + b"(c (d " * 3_000 + b"\n\nwords"),
        (CorruptFile, "damaged", "a.jsonl.gz", gzip.compress(b'{"text": "x"}' * 99, mtime=0)[:30]),
        # encrypted
        (EncryptedFile, "password", "a.docx", OLE + "EncryptedPackage".encode("utf-16-le")),
        (EncryptedFile, "password", "a.docx", bytes(LOCKED)),
        # made to exhaust time or memory
        (
            CorruptFile,
            "50,000 attributes",
            "a.html",
            ("<p title='>' " + " ".join(f"a{n}=1" for n in range(49_999)) + ">x").encode(),
        ),
        (CorruptFile, "nest", "a.html", b"<div>" * 200_000 + b"x"),
        (CorruptFile, "nest", "a.html", b"<ul><li>" * 100_000 + b"x"),
        (CorruptFile, "never close", "a.wiki", b"<ref>" * 100_000),
        (CorruptFile, "", "a.docx", expanding("word/document.xml", "<w:d xmlns:w='w'>&m;</w:d>")),
        (CorruptFile, "", "a.epub", expanding("META-INF/container.xml", "<c>&m;</c>")),
        (CorruptFile, "", "a.odt", expanding("content.xml", "<office>&m;</office>")),
    ],
    ids=lambda value: value if isinstance(value, str) and value[:2] == "a." else "",
)
def test_a_bad_file_is_refused(tmp_path, kind, said, name, content):
    (tmp_path / name).write_bytes(content)
    assert said in refusal(tmp_path / name, kind)


def test_entities_in_html_stay_short(tmp_path):
    page = f"{ENTITIES}]><html><body><p>x &m; y</p></body></html>"
    document = write_and_read(tmp_path / "a.xhtml", page)
    assert len(document.text) < 5_000


def lying(data: bytes) -> bytes:
    """Return an archive that declares ten bytes, whatever its member unpacks to."""
    made = bytearray(data)
    for mark, place in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        struct.pack_into("<I", made, made.index(mark) + place, 10)
    return bytes(made)


def sharing() -> bytes:
    """Return an archive whose directory names one large member 300 times."""
    packed = pack({f"word/{i:04}": b"0" for i in range(300)} | {"word/big": b"0" * (1 << 20)})
    data = bytearray(packed)
    with zipfile.ZipFile(io.BytesIO(packed)) as opened:
        big = opened.getinfo("word/big")
    at = 0
    for _ in range(300):
        at = data.index(b"PK\x01\x02", at + 1) if at else data.index(b"PK\x01\x02")
        struct.pack_into("<H", data, at + 10, big.compress_type)
        struct.pack_into("<III", data, at + 16, big.CRC, big.compress_size, big.file_size)
        struct.pack_into("<I", data, at + 42, big.header_offset)
    return bytes(data)


ZEROS = b"0" * (40 << 20)


@pytest.mark.parametrize(
    ("bomb", "kind"),
    [
        (lambda: pack({"word/document.xml": ZEROS}), TooLarge),
        (lambda: pack({"xl/workbook.xml": ZEROS}), TooLarge),
        (lambda: lying(pack({"word/document.xml": ZEROS})), CorruptFile),
        (sharing, (TooLarge, CorruptFile)),  # newer releases of Python find the overlap
    ],
)
def test_zip_bombs(tmp_path, bomb, kind):
    (tmp_path / "a.docx").write_bytes(bomb())
    with pytest.raises(kind):
        read_file(tmp_path / "a.docx")


def test_too_many_members_and_a_gzip_bomb(tmp_path):
    (tmp_path / "a.docx").write_bytes(pack({f"word/{i}": b"" for i in range(30)}))
    assert "30 members" in refusal(tmp_path / "a.docx", TooLarge, Limits(members=20))
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b" " * (8 << 20)))
    refusal(tmp_path / "a.jsonl.gz", TooLarge, Limits(unpacked_bytes=1 << 20))


def test_large_files_are_refused_by_their_size(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"word " * 20_000_000)
    said = refusal(path, TooLarge)
    assert "100,000,000 bytes" in said
    assert "67,108,864" in said
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a hole: it takes no room on the disk, and is not loaded
    assert "split it" in refusal(path, TooLarge)


@pytest.fixture
def on_opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, Callable[[], None]], None]:
    """`on_opening(path, act)` calls `act` whenever the file is opened."""
    really_open = Path.open

    def register(path: Path, act: Callable[[], None]) -> None:
        def acting(self: Path, *args: Any, **kwargs: Any) -> Any:
            file = really_open(self, *args, **kwargs)
            if self == path:
                try:
                    act()
                except OSError:
                    file.close()
                    raise
            return file

        monkeypatch.setattr(Path, "open", acting)

    return register


@pytest.mark.parametrize("times", [1, 9])
def test_a_file_that_changes_is_read_once_more(tmp_path, on_opening, times):
    path = tmp_path / "a.txt"
    path.write_text("words")
    opened = []

    def grow() -> None:
        opened.append(1)
        if len(opened) <= times:
            with open(path, "ab") as file:  # noqa: PTH123 (the other is being watched)
                file.write(b" more")

    on_opening(path, grow)
    if times == 1:
        assert read_file(path).documents[0].text == "words more"
    else:
        assert "try again" in refusal(path, ReadingError)
    assert len(opened) == 2


def test_a_file_that_vanishes_or_may_not_be_read(tmp_path, on_opening):
    path = tmp_path / "a.txt"
    path.write_text("words")

    def refuse() -> None:  # as the system does for anyone but root
        raise PermissionError(13, "Permission denied", str(path))

    on_opening(path, refuse)
    assert "permission denied" in refusal(path, ReadingError)
    on_opening(path, path.unlink)
    refusal(path, MissingPath)


def test_an_empty_file_is_not_opened(tmp_path, on_opening):
    """Files of the kernel, such as /proc/kmsg, are regular and empty, and reading one may wait."""
    for name in ("a.txt", "unknown"):
        (tmp_path / name).touch()
        on_opening(tmp_path / name, lambda: pytest.fail("it was opened"))
        assert find_files([tmp_path / name]).files == (tmp_path / name,)
        assert "0 bytes" in refusal(tmp_path / name, NoText)
    on_opening(tmp_path / "unknown", lambda: pytest.fail("it was opened"))
    assert len(find_files([tmp_path]).files) == 2


def test_deep_lists_of_a_wiki_page_keep_their_words(tmp_path):
    items = [f"{'*' * (1 + n % 300)} item {n}" for n in range(600)]
    document = write_and_read(tmp_path / "a.wiki", "\n".join(items))
    assert all(f"item {n}\n" in document.text for n in range(600))
    assert max(len(line) - len(line.lstrip()) for line in document.text.split("\n")) < 60


@pytest.mark.parametrize("blank", ["\n", " "])
def test_blanks_by_the_million_are_read(tmp_path, blank):
    document = write_and_read(tmp_path / "a.txt", f"first{blank * 300_000}last")
    assert document.text == f"first{blank * 300_000}last"
    chunks = Structural()(document)
    assert (chunks[0].start, chunks[-1].end) == (0, len(document))
    assert len(chunks) == (2 if blank == "\n" else 1)


@pytest.mark.parametrize(("characters", "kept"), [(5, False), (400, True)])
def test_headings_by_the_thousand_are_sections_only_with_text(tmp_path, characters, kept):
    file = tmp_path / "many.md"
    file.write_text("".join(f"# Part {n}\n\n{'a b ' * (characters // 4)}.\n\n" for n in range(60)))
    read = read_file(file, Limits(sections=50))
    [document] = read.documents
    assert (len(Structural()(document)) >= 60) is kept
    assert [line for line in read.warnings if "60 headings" in line] == (
        [] if kept else [f"{file}: 60 headings in 1,070 characters are read as plain text"]
    )
