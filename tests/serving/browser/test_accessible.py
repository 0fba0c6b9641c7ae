"""Every view held to axe's rules, in both colours, and to a small screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from axe_playwright_python.async_playwright import Axe

pytestmark = pytest.mark.asyncio(loop_scope="session")

Do = Callable[..., Awaitable[Any]]
NARROW = {"width": 360, "height": 740}


async def views(page: Page, filled: Any, ask: Do) -> Any:
    """Each view in turn, once there is something to see in it."""
    await page.goto(filled.url)
    await page.locator("#strategy option").nth(5).wait_for(state="attached")
    yield "ask, before"
    for strategy in ("retrieve-read", "duquad", "rdr2", "dualrag", "spd-rag", "longrefiner"):
        await ask(page, filled, strategy=strategy)
        await expect(page.locator(".excerpt.waiting")).to_have_count(0)
        yield f"ask, {strategy}"
    await page.get_by_text("Settings").click()
    yield "ask, settings"
    await page.locator("a.cite").first.click()
    await page.locator("dialog mark.main").wait_for()
    yield "document, over the page"
    await page.keyboard.press("Escape")
    await page.goto(f"{filled.url}#/library")
    await page.locator(".documents").wait_for()
    yield "library"
    await page.locator(".documents a").first.click()
    await page.locator("dialog .reader").wait_for()
    await page.keyboard.press("Escape")
    await page.goto(f"{filled.url}#/runs")
    await page.locator(".run-list li").first.wait_for()
    yield "runs"
    await page.locator(".run-list a").first.click()
    await page.locator(".outcome[aria-busy=false] .said").wait_for()
    yield "replay"
    await page.goto(f"{filled.url}#/compare")
    await page.get_by_label("Question").fill("How many days to cure a violation after notice?")
    await page.get_by_role("button", name="Compare").click()
    await page.locator(".verdict-table").wait_for()
    yield "compare"


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_axe_finds_nothing(look: Do, filled: Any, ask: Do, colours: str) -> None:
    page = (await look(color_scheme=colours)).page
    found = {}
    async for view in views(page, filled, ask):
        result = await Axe().run(page)
        for rule in result.response["violations"]:
            places = [node["target"] for node in rule["nodes"][:3]]
            found[view, rule["id"]] = (rule["impact"], places, rule["nodes"][0]["failureSummary"])
    assert found == {}


async def test_nothing_is_wider_than_a_small_screen(look: Do, filled: Any, ask: Do) -> None:
    page = (await look(viewport=NARROW)).page
    async for view in views(page, filled, ask):
        width = await page.evaluate("document.documentElement.scrollWidth")
        assert width <= NARROW["width"], view
