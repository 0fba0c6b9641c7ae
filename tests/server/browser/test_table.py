"""A table in the page: filled row by row, its cells opened, corrected, filtered, downloaded."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openpyxl
import pytest
from playwright.async_api import Page, expect

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from axe_playwright_python.async_playwright import Axe

from colligate.models import ChatRequest
from colligate.testing import ScriptedModel
from support.documents import text_pdf
from support.http_server import threaded
from support.leases import COLUMNS, read_lease

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real]

LEASES = {
    "anna.pdf": [
        ["Lease of Anna", "The lease follows on the next page."],
        ["Terms", "The rent is EUR 48,000 a year.", "It ends on 31 December 2026."],
    ],
    "boris.pdf": [
        ["Lease of Boris", "The rent is EUR 9,500 a year.", "It ends on 1 March 2027."],
        ["Schedule", "By the schedule the rent is EUR 13,000 a year."],
    ],
}
WIDE, SMALL = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


class Lawyer(ScriptedModel):
    """Fills the tables of leases; Boris's wait until `gate` is set."""

    def __init__(self) -> None:
        super().__init__(lambda c: json.dumps(read_lease(c.prompt, c.schema["properties"])))
        self.gate = threading.Event()

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        if "9,500" in request.prompt:
            await asyncio.to_thread(self.gate.wait)
        return await super().chat(request, on_token)


@pytest.fixture
def lawyer() -> Lawyer:
    return Lawyer()


@pytest.fixture
def leases(tmp_path: Path, lawyer: Lawyer) -> Iterator[str]:
    with threaded(tmp_path, lawyer) as url:
        yield url
        lawyer.gate.set()


async def violate_nothing(page: Page) -> None:
    """Hold what is shown to axe's rules in both colours, the second time on a small screen."""
    for colours, size in (("light", WIDE), ("dark", SMALL)):
        await page.emulate_media(color_scheme=colours)
        await page.set_viewport_size(size)
        found = (await Axe().run(page)).response["violations"]
        assert [(each["id"], each["nodes"][0]["target"]) for each in found] == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= size["width"]


async def test_a_table_is_filled_checked_corrected_and_downloaded(
    page, leases, lawyer, upload, tmp_path
):
    await upload(page, leases, "leases", {n: text_pdf(pages) for n, pages in LEASES.items()})
    await page.goto(f"{leases}#/table")
    await page.get_by_label("Columns").fill(COLUMNS)
    await page.get_by_role("button", name="Fill the table").click()
    await expect(page.locator(".estimate")).to_contain_text("2 documents to read: about 4 calls")
    await page.keyboard.press("Enter")
    rows = page.locator(".cells tbody tr")
    await expect(rows).to_have_count(1)  # Boris's is still being read
    await expect(page.locator(".progress")).to_contain_text("1 of 2 documents")
    lawyer.gate.set()
    await expect(rows).to_have_count(2)
    await expect(page.locator(".filling > [role=status]")).to_have_text(
        "3 of 10 cells filled, 1 doubtful."
    )
    await violate_nothing(page)
    await page.set_viewport_size(WIDE)

    await rows.nth(0).get_by_role("button", name="EUR 48,000").press("Enter")
    panel = page.locator(".cell-panel")
    await expect(panel).to_contain_text("The rent is EUR 48,000 a year.")
    await expect(panel).to_contain_text("page 2 · ")
    await expect(page.get_by_role("img", name="Page 2 of")).to_be_visible()
    await expect(page.locator(".box").first).to_be_in_viewport()
    await page.keyboard.press("Escape")

    await page.get_by_label("Doubtful first").check()
    await expect(rows.nth(0).locator(".doubtful")).to_contain_text("the document says several")
    await rows.nth(0).locator(".doubtful button").click()
    await expect(page.locator(".stepper")).to_contain_text("Source 1 of 2")
    await panel.get_by_label("Correct value").fill("EUR 13,000")
    await page.keyboard.press("Enter")
    await expect(panel.get_by_role("status")).to_have_text("Saved")
    await page.keyboard.press("Escape")
    await expect(page.locator(".doubtful")).to_have_count(0)
    await page.get_by_role("button", name="rent").click()
    await expect(rows.nth(0)).to_contain_text("EUR 13,000")
    await page.get_by_label("Filter rows").fill("48,0")
    await expect(rows).to_have_count(1)

    await page.get_by_label("Filter rows").fill("")
    await page.reload()  # the address is that of the run
    await expect(rows).to_have_count(2)
    await expect(rows.nth(1)).to_contain_text("EUR 13,000")
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Download as Excel").click()
    file = tmp_path / "leases.xlsx"
    await (await waiting.value).save_as(file)
    cells = [row[2].value for row in openpyxl.load_workbook(file).active.iter_rows(max_row=3)]
    assert cells == ["rent", 48000, 13000]
    if office := shutil.which("soffice"):
        command = [office, "--headless", "--convert-to", "csv", "--outdir", tmp_path, file]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=120)
        assert "Sum,,61000" in file.with_suffix(".csv").read_text()  # the sum

    await rows.nth(0).get_by_role("button", name="EUR 48,000").click()
    await expect(page.locator(".box").first).to_be_in_viewport()
    await violate_nothing(page)
    await expect(page.locator(".box").first).to_be_in_viewport()
