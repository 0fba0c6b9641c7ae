"""The page of a PDF beside its text, with the cited words marked on it."""

from __future__ import annotations

import pytest
from playwright.async_api import Page, expect

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from axe_playwright_python.async_playwright import Axe

from support.documents import text_pdf

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real]

RULES = [
    ["House rules", "The rules of the house follow on the next pages."],
    ["Bells", "The bell of the tower rings at nine in the morning."],
]


async def ink_under_the_box(page: Page) -> bool:
    """Whether the marked rectangle of the picture holds both ink and paper."""
    return await page.evaluate(
        """() => {
            const img = document.querySelector(".drawn img");
            const b = document.querySelector(".box").getBoundingClientRect();
            const i = img.getBoundingClientRect();
            const canvas = document.createElement("canvas");
            [canvas.width, canvas.height] = [img.naturalWidth, img.naturalHeight];
            const drawn = canvas.getContext("2d");
            drawn.drawImage(img, 0, 0);
            const scale = img.naturalWidth / i.width;
            const cut = [b.left - i.left, b.top - i.top, b.width, b.height];
            const { data } = drawn.getImageData(...cut.map((each) => each * scale));
            const values = data.filter((_, n) => n % 4 === 0);
            return Math.min(...values) < 128 && Math.max(...values) > 200;
        }"""
    )


async def test_the_page_of_a_citation_is_shown_with_its_words_marked(page, served, upload, ask):
    await upload(page, served, "tower", {"rules.pdf": text_pdf(RULES)})
    await ask(page, served, "When does the bell of the tower ring in the morning?")
    await page.locator("a.cite").first.click()
    await page.get_by_role("button", name="Page of the PDF").press("Enter")
    shown = page.get_by_role("img", name="Page 2 of")
    await expect(shown).to_be_in_viewport()
    await expect(page.locator(".box").first).to_be_in_viewport()
    assert await ink_under_the_box(page)
    await expect(page.locator("dialog mark.main")).to_be_in_viewport()  # the text is beside it
    for colours in ("light", "dark"):
        await page.emulate_media(color_scheme=colours)
        found = (await Axe().run(page)).response["violations"]
        assert [each["id"] for each in found] == []
    await page.get_by_role("button", name="Previous page").press("Enter")
    await expect(page.get_by_role("img", name="Page 1 of")).to_be_visible()
    await expect(page.locator(".box")).to_have_count(0)
    await expect(page.get_by_role("button", name="Previous page")).to_be_disabled()
    await page.set_viewport_size({"width": 360, "height": 740})
    await expect(page.locator("dialog .text")).not_to_be_visible()
    await expect(page.locator(".drawn img")).to_be_in_viewport()
    assert await page.evaluate("document.documentElement.scrollWidth") <= 360
    await page.get_by_role("button", name="Page of the PDF").click()
    await expect(page.locator("dialog .text")).to_be_visible()


async def test_without_its_file_a_document_is_shown_as_text(look, served, upload):
    looked = await look()
    page = looked.page
    await upload(page, served, "gone", {"rules.pdf": text_pdf(RULES)})
    (document,) = await page.evaluate(
        "async () => (await fetch('api/libraries/gone/documents')).json()"
    )
    gone = {"title": "Not here", "detail": "the file is no longer on this machine", "status": 404}
    await page.route("**/picture?*", lambda route: route.fulfill(json=gone, status=404))
    await page.goto(f"{served}#/document/gone/{document['id']}")
    await page.get_by_role("button", name="Page of the PDF").click()
    await expect(page.get_by_role("status")).to_have_text(gone["detail"])
    await expect(page.locator(".text")).to_contain_text("rings at nine")
    assert all("404" in looked.complaints.pop() for _ in [*looked.complaints])
