"""A table in the page: filled row by row, its cells opened, corrected, filtered, downloaded."""

from __future__ import annotations

import asyncio
import json
import re
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

from colligate.errors import EndpointUnreachable
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
    """Fills the tables of leases, until it is `gone`; Boris's wait until `gate` is set."""

    def __init__(self) -> None:
        super().__init__(lambda c: json.dumps(read_lease(c.prompt, c.schema["properties"])))
        self.gate = threading.Event()
        self.gone = False

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        if self.gone:
            raise EndpointUnreachable("nobody answers at http://there/v1")
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
    await expect(page.locator("#columns-help")).to_contain_text(
        "2 documents to read: about 4 calls"
    )
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


async def test_a_table_of_records_in_chosen_documents_by_keyboard_until_the_model_is_gone(
    page, leases, lawyer, tmp_path
):
    loans = {"loans.md": "# Loans\n\nLoan A of 100 euros.\n\nLoan B of 25 euros.\n"}
    for name, text in {**loans, "yard.md": "# Yard\n\nBicycles stand there.\n"}.items():
        (tmp_path / name).write_text(text)
    await page.goto(f"{leases}#/table")
    await expect(page.locator(".table-view")).to_contain_text("The library is empty.")
    await expect(page.get_by_label("Columns")).to_have_count(0)
    await page.get_by_label("Files to add").set_input_files(
        [tmp_path / "loans.md", tmp_path / "yard.md"]
    )
    columns, told = page.get_by_label("Columns"), page.locator("#columns-help")
    await columns.fill("amount: number")
    await page.get_by_text("More choices").press("Enter")
    await page.get_by_label("a row for each").fill("loan")
    await page.get_by_label("Loans").press("Space")
    await columns.press("Enter")
    await expect(told).to_have_text(
        re.compile("^1 document to read: about 2 calls and .* tokens.$")
    )
    await columns.press("Enter")
    rows, grid = page.locator(".cells tbody tr"), page.get_by_role("table").last
    await expect(rows).to_have_text([re.compile("LoansA ?100 euros"), re.compile("LoansB ?25")])
    await page.locator(".filling[aria-busy=false]").wait_for()
    await page.get_by_role("button", name="amount").press("Enter")
    await expect(rows.first).to_contain_text("25 euros")

    await page.reload()  # the form says what the table was made of
    await expect(page.get_by_label("a row for each")).to_have_value("loan")
    await expect(page.locator(".settings .count")).to_have_text("2")
    await page.get_by_text("More choices").press("Enter")
    await page.get_by_role("button", name="Untick all").press("Enter")
    await page.get_by_label("a row for each").fill("")
    await columns.press("Enter")
    await expect(told).to_have_text(re.compile(r"^2 documents to read: .*, about \d+ s\.$"))
    lawyer.gone = True
    await columns.press("Enter")
    await expect(page.locator(".warnings")).to_have_text(
        "documents were not read: nobody answers at http://there/v1"
    )
    await expect(grid.get_by_role("button", name="not read")).to_have_count(2)
    await violate_nothing(page)
