"""Formats of other packages: a reader that an entry point registers for a file suffix."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from colligate.documents.reading import Reading, find_files, read_file
from colligate.documents.reading.formats import installed_readers
from colligate.errors import NoText, ReadingError, UnsupportedFormat
from colligate.library.parsing import ParserPool
from support.plugins import installed

READERS = """
from colligate.documents.reading import make_document


def read_subtitles(source):
    lines = [line for line in source.text.splitlines() if line and "-->" not in line]
    if len(lines) > 2:
        source.warn("times are left out")
    return make_document(source, "# Spoken\\n\\n" + " ".join(lines), media_type="text/srt")


def read_many(source):
    for line in source.data.split(b";"):
        yield make_document(source, line.decode(), title="part")


def read_text(source):
    return source.text


def read_nothing(source):
    return []


def fail(source):
    raise KeyError("chapter")
"""
ENTRIES = {
    "srt": "read_subtitles",
    "many.gz": "read_many",
    "pdf": "read_subtitles",  # in place of our own
    "str": "read_text",
    "none": "read_nothing",
    "bad": "fail",
    "gone": "no_such_function",
}


@pytest.fixture(autouse=True)
def package(tmp_path: Path) -> Iterator[None]:
    """Install a package with entry points, as pip leaves it."""
    entries = {suffix: f"our_formats:{name}" for suffix, name in ENTRIES.items()}
    with installed(tmp_path / "site", READERS, {"formats": entries}, "our_formats"):
        yield


SUBTITLES = b"\x00\x01\n00:01 --> 00:02\nGood\nmorning\n"  # binary by its look


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "film.srt").write_bytes(SUBTITLES)
    (folder / "film.bin").write_bytes(SUBTITLES)
    return folder


def check(reading: Reading) -> None:
    (document,) = reading.documents
    assert document.text == "# Spoken\n\n\ufffd\x01 Good morning"
    assert (document.title, document.media_type) == ("Spoken", "text/srt")
    assert document.id.startswith("film-")
    assert [warning.split(": ")[-1] for warning in reading.warnings] == [
        "NUL characters were replaced",
        "times are left out",
    ]
    assert document.warnings == reading.warnings


def test_a_registered_suffix_is_found_and_read_in_this_and_in_a_parser_process(folder):
    (file,) = find_files([folder]).files
    assert file.name == "film.srt"
    check(read_file(file))
    parsers = ParserPool(1)
    try:
        check(parsers.read(file).reading)
    finally:
        parsers.close()


def test_a_registered_suffix_goes_before_our_own_readers(folder):
    check(read_file((folder / "film.srt").rename(folder / "film.pdf")))


def test_a_reader_may_return_many_documents_and_a_suffix_may_be_double(folder):
    (folder / "a.many.gz").write_bytes(b"one;two")
    found = read_file(folder / "a.many.gz").documents
    assert [document.text for document in found] == ["one", "two"]
    assert all(document.id.startswith("a-") for document in found)


@pytest.mark.parametrize(
    ("suffix", "kind", "why"),
    [
        ("str", ReadingError, "expected a Document, got str"),
        ("none", NoText, "no document"),
        ("bad", ReadingError, "our_formats:fail failed .*chapter"),
        ("gone", ReadingError, "no_such_function"),
    ],
)
def test_a_faulty_reader_costs_one_file(folder, suffix, kind, why):
    file = folder / f"a.{suffix}"
    file.write_text("text")
    with pytest.raises(kind, match=why) as caught:
        read_file(file)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "package", "extra"),
    [
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "xberg", "legacy"),
        ("a.wiki", b"== Words ==", "mwparserfromhell", "wikitext"),
    ],
)
def test_a_format_of_an_extra_names_the_extra(tmp_path, monkeypatch, name, content, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, "colligate.documents.reading.wikitext", raising=False)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UnsupportedFormat, match=rf"{package}.*colligate\[{extra}\]"):
        read_file(tmp_path / name)
    assert package not in installed_readers()
