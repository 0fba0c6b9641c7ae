"""PDFs by docling: what it writes becomes the same document as ours, and what happens without it.

The program itself is replaced here, as its packages do not fit beside colligate's: the stand-in
writes what docling's own types wrote (`support/docling_report.py`), or fails as docling does. The
last test runs the program where it is installed.
"""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from colligate.documents import Basis, Kind
from colligate.documents.reading import Limits, read_file
from colligate.documents.reading.pdf.docling import require_reader
from colligate.errors import MissingExtra, ReadingError, TooLarge, UsageError
from colligate.library.parsing import ParserPool
from support.docling_report import install
from support.documents import text_pdf, texts_of

pytestmark = pytest.mark.posix  # the stand-in is a script
BY_DOCLING = Limits(pdf="docling")
REAL = shutil.which("docling")

# The end of what docling 2.143 says without a network and without models.
NO_MODELS = """huggingface_hub.errors.LocalEntryNotFoundError: Got: ConnectError: [Errno -2] Name or
An error happened while trying to locate the files on the Hub, and we cannot find the appropriate
snapshot folder for the specified revision on the local disk. Please check your internet connection
and try again."""
NO_MODELS_HERE = "docling has no models here and cannot fetch them from the hub"


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`stand_in(code)` puts a program docling on the PATH that runs some code."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return partial(install, folder)


@pytest.fixture
def report(tmp_path: Path) -> Path:
    path = tmp_path / "mill.pdf"
    path.write_bytes(text_pdf([["The mill ground 40 tons"], ["of rye."], ["The wheel."], []]))
    return path


def test_what_docling_finds_is_a_document_as_ours(stand_in, report):
    stand_in()
    read = read_file(report, BY_DOCLING)
    (document,) = read.documents
    assert document.title == "Report of the mill"
    found = [(section.title, section.level) for section in document.tree.sections]
    assert found == [("Report of the mill", 1), ("1 Flour", 1), ("1.1 Prices", 2), ("2 Repairs", 1)]
    assert document.tree.structure.basis is Basis.NUMBERING
    table = "| Price of a sack |  |\n|---|---|\n| rye | 7.20 |\n| oats \\| barley | 5.10 |"
    assert texts_of(document, Kind.TABLE) == [table]
    assert document.text.index("Table 1. Prices") < document.text.index("| Price")
    assert "1. the wheel\n    - two paddles\n\n☒ inspected\n\np = w h\n\n" in document.text
    assert texts_of(document, Kind.CODE) == ["```\nturn = 7\n  halt = 0\n```"]
    assert document.text.endswith("Wheel Race")
    assert "Mill Ltd" not in document.text  # the running header
    assert read.warnings == (f"{report}: no text (blank, or scanned: --ocr reads scans): page 4",)


def test_every_passage_has_its_page(stand_in, report):
    stand_in()
    (document,) = read_file(report, BY_DOCLING).documents
    for words, number in (
        ("Report of the mill", 1),
        ("40 tons of rye, and the", 1),
        ("# of sacks rose", 2),  # the same paragraph, on the next page
        ("| rye | 7.20 |", 2),
        ("two paddles", 3),
    ):
        at = document.text.index(words)
        assert document.page_of(document.span(at, at + len(words))).number == number
    assert [page.number for page in document.pages] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"sys.exit({NO_MODELS!r})", NO_MODELS_HERE),
        ("sys.exit('Traceback\\nValueError: bad font')", "docling failed (ValueError: bad font)"),
        ("sys.exit()", "docling failed (it wrote nothing)"),
        ("written.write_text('{')", "docling failed (it wrote nothing)"),
    ],
)
def test_a_failure_is_one_line(stand_in, report, code, said):
    stand_in(code)
    with pytest.raises(ReadingError) as raised:
        read_file(report, BY_DOCLING)
    assert (raised.value.what, raised.value.why) == (f"cannot read {report}", said)
    assert raised.value.hint.endswith("use --pdf liteparse")
    assert ("docling-tools models download" in raised.value.hint) == (said == NO_MODELS_HERE)


def test_it_has_the_time_of_the_file(stand_in, report, monkeypatch):
    stand_in("time.sleep(60)")
    monkeypatch.setattr(Limits, "seconds", lambda *_: 1.0)
    with pytest.raises(TooLarge, match="docling took longer than 1 s"):
        read_file(report, BY_DOCLING)


def test_it_ends_with_the_process_that_reads(stand_in, report, tmp_path):
    note = tmp_path / "pid"
    stand_in(f"Path({str(note)!r}).write_text(str(os.getpid())); time.sleep(60)")
    pool = ParserPool(1, limits=BY_DOCLING)
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(pool.read, report)
        while not (note.exists() and note.read_text()):
            assert not reading.done()
            time.sleep(0.05)
        pool.close()
        assert reading.result().error is not None
    for _ in range(200):
        try:
            os.kill(int(note.read_text()), 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("docling runs on")


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("docling", MissingExtra, "no program docling on the PATH; pipx install docling"),
        ("dockling", UsageError, "expected liteparse or docling, got 'dockling'"),
    ],
)
def test_what_is_missing_is_said(tmp_path, monkeypatch, name, kind, said):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kind, match=said):
        require_reader(name)


@pytest.mark.skipif(REAL is None, reason="docling is not installed")
def test_the_program_itself(report):
    """It reads, or says that it has no models: both need no network."""
    read = ParserPool(1, limits=BY_DOCLING)
    outcome = read.read(report)
    read.close()
    if outcome.error is not None:
        assert outcome.error.why == NO_MODELS_HERE
        return
    (document,) = outcome.reading.documents
    assert "40 tons" in document.text
    assert [page.number for page in document.pages] == [1, 2, 3, 4]
