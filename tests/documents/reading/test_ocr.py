"""OCR: scanned PDFs and pictures, off by default."""

import pytest

pytest.importorskip("PIL", reason="the extra `ocr` is not installed")

from colligate.documents.reading import Limits, find_files, read_file
from colligate.documents.reading.pdf.ocr import find_language_data
from colligate.errors import CorruptFile, MissingExtra, NoText, UnsupportedFormat, UsageError
from colligate.library.library import AsyncLibrary
from support.documents import scanned, text_pdf
from support.embedders import WordEmbedder

ENGLISH = Limits(ocr="eng")
PAGES = [["House rules of the tower"], ["The bell rings at nine in the morn-", "ing and at six."]]


@pytest.fixture(autouse=True)
def language_data() -> None:
    try:
        find_language_data("eng")
    except MissingExtra as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("form", ["PDF", "TIFF"])
def test_each_scanned_page_is_a_page_of_text(tmp_path, form):
    path = tmp_path / f"rules.{form.lower()}"
    path.write_bytes(scanned(PAGES, form))
    (document,) = read_file(path, ENGLISH).documents
    shown = [document.text[page.start : page.end].strip() for page in document.pages]
    assert shown == [PAGES[0][0], "The bell rings at nine in the morning and at six."]
    assert document.metadata["ocr"] == "eng"
    assert document.media_type == {"PDF": "application/pdf", "TIFF": "image/tiff"}[form]


def test_pages_with_text_are_left_as_they_are(tmp_path):
    path = tmp_path / "text.pdf"
    path.write_bytes(text_pdf([*PAGES, []]))
    plain, by_ocr = read_file(path), read_file(path, ENGLISH)
    assert by_ocr.documents[0].text == plain.documents[0].text
    assert "--ocr reads scans" in plain.warnings[0]
    assert "OCR finds no text" in by_ocr.warnings[0]


def test_without_it_one_line_says_how(tmp_path):
    for name, form, kind in (("a.pdf", "PDF", NoText), ("a.jpg", "JPEG", UnsupportedFormat)):
        (tmp_path / name).write_bytes(scanned(PAGES[:1], form))
        with pytest.raises(kind, match="--ocr reads it"):
            read_file(tmp_path / name)
    assert [path.name for path in find_files([tmp_path]).files] == ["a.pdf"]
    assert len(find_files([tmp_path], pictures=True).files) == 2


def test_a_blank_or_damaged_picture_costs_one_line(tmp_path):
    picture = tmp_path / "a.png"
    picture.write_bytes(scanned([[]], "PNG"))
    with pytest.raises(NoText, match="OCR finds no text"):
        read_file(picture, ENGLISH)
    picture.write_bytes(scanned(PAGES[:1], "PNG")[:400])
    with pytest.raises(CorruptFile, match="damaged"):
        read_file(picture, ENGLISH)


@pytest.mark.parametrize(
    ("languages", "kind", "said"),
    [
        ("eng+xyz", MissingExtra, r"has xyz.traineddata; pip install"),
        ("../eng", UsageError, "Tesseract names them"),
    ],
)
async def test_a_language_without_data_is_said_before_any_reading(tmp_path, languages, kind, said):
    async with AsyncLibrary(tmp_path / "library", embedder=WordEmbedder(), ocr=languages) as made:
        with pytest.raises(kind, match=said):
            await made.add([tmp_path])


async def test_files_that_could_not_be_read_are_read_again_with_it(tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "scan.pdf").write_bytes(scanned(PAGES))
    (files / "mixed.pdf").write_bytes(text_pdf([["The hall is long."], []]))
    library, embedder = tmp_path / "library", WordEmbedder()
    async with AsyncLibrary(library, embedder=embedder) as plain:
        first = await plain.add([files])
        assert [path.name for path, _ in first.failed] == ["scan.pdf"]
    async with AsyncLibrary(library, embedder=embedder, ocr="eng") as with_ocr:
        second = await with_ocr.add([files])
        assert [path.name for path in second.added] == ["scan.pdf"]
        assert [path.name for path in second.updated] == ["mixed.pdf"]
        (hit, *_) = await with_ocr.search("bell rings morning", k=1)
        assert "nine in the morning" in hit.passage.text
        third = await with_ocr.add([files])
        assert len(third.unchanged) == 2
    async with AsyncLibrary(library, embedder=embedder) as plain:
        assert len((await plain.add([files])).unchanged) == 2
