"""The picture of a PDF's page, and where on it a range of the document's text is."""

import io
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from PIL import Image

from colligate.documents.reading.pdf.ocr import find_language_data
from colligate.errors import MissingExtra
from support.documents import scanned, text_pdf
from support.http_server import DEFAULT, ServerClient

LINES = ["The yard is behind the house.", "Bicycles stand in the of-", "fice yard, never in it."]
QUOTE = "Bicycles stand in the office yard"


@pytest.fixture
def yard(serve: Any) -> Any:
    """A server with a PDF of two pages; on the second is the quote."""
    return serve(files={"yard.pdf": text_pdf([["First page."], LINES])})


async def pages_of(client: ServerClient) -> tuple[str, int]:
    """The address of the document's pages, and where its quote begins."""
    (document,) = await client.listed("documents")
    path = f"{DEFAULT}/documents/{document['id']}"
    return f"{path}/pages", (await client.get(path)).json()["text"].index(QUOTE)


async def test_a_page_is_drawn_and_a_quote_is_boxed(yard):
    async with yard as client:
        pages, start = await pages_of(client)
        drawn = await client.get(f"{pages}/2/picture?width=306")
        assert drawn.headers["content-type"] == "image/webp"
        picture = Image.open(io.BytesIO(drawn.content)).convert("L")
        assert picture.size == (306, 396)
        range_ = f"start={start}&end={start + len(QUOTE)}"
        boxes = (await client.get(f"{pages}/2/boxes?{range_}")).json()
        assert len(boxes) == 2  # lines, although the word at the end of the first is whole in text
        for left, top, right, bottom in boxes:
            cut = picture.crop(
                (int(306 * left), int(396 * top), int(306 * right), int(396 * bottom))
            )
            assert cut.getextrema()[0] < 128 < cut.getextrema()[1]  # ink on paper
        assert boxes[0][1] < boxes[0][3] < boxes[1][1] + 0.01
        assert (await client.get(f"{pages}/1/boxes?{range_}")).json() == []


async def test_a_file_that_is_gone_or_has_changed_is_not_shown(yard, tmp_path):
    wrong = {"3/picture": 404, "0/picture": 404, "1/picture?width=9000": 422, "1/boxes": 422}
    async with yard as client:
        pages, _ = await pages_of(client)
        for what, status in wrong.items():
            assert (await client.get(f"{pages}/{what}")).status_code == status
        (file,) = (tmp_path / "papers" / "files").rglob("*.pdf")
        file.write_bytes(text_pdf([["Another text."], ["Another page."]]))
        refused = await client.get(f"{pages}/1/picture")
        assert (refused.status_code, "has changed since it was read" in refused.text) == (404, True)
        file.unlink()
        refused = await client.get(f"{pages}/1/boxes?start=0&end=5")
        assert (refused.status_code, "no longer on this machine" in refused.text) == (404, True)
        assert str(tmp_path) not in refused.text


async def test_the_boxes_of_a_turned_page_are_where_it_shows_them(serve):
    async with serve(files={"turned.pdf": text_pdf([LINES], turned=True)}) as client:
        (document,) = await client.listed("documents")
        pages = f"{DEFAULT}/documents/{document['id']}/pages"
        (left, top, right, bottom), *_ = (
            await client.get(f"{pages}/1/boxes?start=0&end=29")
        ).json()
        assert (left, bottom) == pytest.approx((72 / 792, 72 / 612), abs=0.01)
        assert right - left > 0.15 > 0.03 > bottom - top


async def test_words_of_a_scanned_page_are_boxed(serve, monkeypatch):
    try:
        find_language_data("eng")
    except MissingExtra as error:
        pytest.skip(str(error))
    monkeypatch.setenv("COLLIGATE_OCR", "eng")
    async with serve(files={"yard.png": scanned([LINES], "PNG")}) as client:
        pages, start = await pages_of(client)
        range_ = f"start={start}&end={start + len(QUOTE)}"
        first, second = (await client.get(f"{pages}/1/boxes?{range_}")).json()
        assert first[:2] == pytest.approx([72 / 612, (720 - 16 - 640) / 792], abs=0.02)
        assert first[3] < second[3] < 0.2
        drawn = await client.get(f"{pages}/1/picture?width=306")
        assert Image.open(io.BytesIO(drawn.content)).size == (306, 396)
