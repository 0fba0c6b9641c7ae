"""Every view held to axe's rules, in both colours, and to a small screen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from playwright.async_api import Page, expect

pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")

from axe_playwright_python.async_playwright import Axe

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.real]

Do = Callable[..., Awaitable[Any]]
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 360, "height": 740}


async def views(page: Page, filled: str, ask: Do) -> Any:
    """Each view in turn, once there is something to see in it."""
    await page.goto(filled)
    await page.locator("#strategy option").nth(5).wait_for(state="attached")
    yield "ask, before"
    for strategy in ("auto", "duquad", "rdr2", "dualrag", "spd-rag", "longrefiner"):
        await ask(page, filled, strategy=strategy)
        await expect(page.locator(".excerpt.waiting")).to_have_count(0)
        yield f"ask, {strategy}"
    await page.get_by_label("Follow-up").fill("And how many under the MIT licence?")
    await page.keyboard.press("Enter")
    await page.locator(".earlier").wait_for()
    await page.locator(".outcome[aria-busy=false] .said").wait_for()
    await page.locator(".earlier summary").click()
    yield "ask, conversation"
    await page.get_by_text("More choices").click()
    yield "ask, choices"
    await page.locator("a.cite").first.click()
    await page.locator("dialog mark.main").wait_for()
    yield "document, over the page"
    await page.keyboard.press("Escape")
    await page.goto(f"{filled}#/library")
    await page.locator(".documents").wait_for()
    yield "library"
    await page.locator(".documents a").first.click()
    await page.locator("dialog .reader").wait_for()
    await page.keyboard.press("Escape")
    await page.goto(f"{filled}#/runs")
    await page.locator(".run-list li").first.wait_for()
    yield "runs"
    await page.locator(".run-list a").first.click()
    await page.reload()  # as a run that this page did not ask
    await page.get_by_role("button", name="Wrong", exact=True).click()
    await page.get_by_label("Note on the answer").wait_for()
    yield "run"


async def test_every_view_is_accessible_and_fits_a_small_screen(page, filled, ask):
    """Each view is looked at in light, then in dark colours, then on a small screen."""
    found, wide = [], []
    async for view in views(page, filled, ask):
        found += [f"{view}: {each}" for each in await violations(page)]
        await page.emulate_media(color_scheme="dark")
        colours = await violations(page, {"runOnly": ["color-contrast"]})
        found += [f"{view}, dark: {each}" for each in colours]
        await page.emulate_media(color_scheme="light")
        await page.set_viewport_size(NARROW)
        width = await page.evaluate("document.documentElement.scrollWidth")
        if width > NARROW["width"]:
            wide.append(f"{view}: {width}")
        await page.set_viewport_size(WIDE)
    assert "\n".join(found) == ""
    assert wide == []


async def violations(page: Page, options: dict[str, Any] | None = None) -> list[str]:
    """What breaks a rule, with a few places of each."""
    # Of what breaks none, axe then collects less: it takes a third of the time.
    result = await Axe().run(page, options={"resultTypes": ["violations"], **(options or {})})
    return [
        f"{rule['id']} ({rule['impact']}) at {[node['target'] for node in rule['nodes'][:3]]}: "
        + " ".join(rule["nodes"][0]["failureSummary"].split())
        for rule in result.response["violations"]
    ]
