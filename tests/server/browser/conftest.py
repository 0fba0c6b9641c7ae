"""A real server with a scripted reader, and Chromium to look at its page with."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("playwright", reason="Playwright is not installed")

import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from support.brain import Reader
from support.http_server import threaded

expect.set_options(timeout=20_000)  # milliseconds; 5,000 are few on a loaded machine

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LICENCES = Path(__file__).parents[3] / "examples" / "licences"
QUESTION = (
    "How many days does a violator have to cure a first violation under the GPL version 3, "
    "and how many under the Mozilla Public License 2.0?"
)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server; tests that change its library make one of their own in it."""
    with threaded(tmp_path_factory.mktemp("served"), Reader(), runs=8) as url:
        yield url


def _found(playwrights_own: str) -> str | None:
    """The browser to use, None if there is none."""
    named = os.environ.get("COLLIGATE_CHROMIUM")
    here = (path for name in _NAMES if (path := shutil.which(name)))
    path = named or next(here, playwrights_own)
    return path if Path(path).is_file() else None


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    """Debian's Chromium, or another on the path, or the one that `COLLIGATE_CHROMIUM` names."""
    async with async_playwright() as playwright:
        path = _found(playwright.chromium.executable_path)
        if path is None:
            why = "no Chromium: apt-get install chromium, or name one in COLLIGATE_CHROMIUM"
            if os.environ.get("CI"):
                pytest.fail(why)
            pytest.skip(why)
        browser = await playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


class Looked:
    """A page, and what its console complained of: nothing, unless a test takes it out."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(20_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._heard)

    def _heard(self, said: ConsoleMessage) -> None:
        if said.type in ("error", "warning"):
            self.complaints.append(said.text)


@pytest_asyncio.fixture(loop_scope="session")
async def look(chromium: Browser) -> AsyncIterator[Callable[..., Awaitable[Looked]]]:
    """`await look(...)` is a page of a browser that knows nothing; the options are a context's."""
    looked: list[Looked] = []

    async def make(**options: Any) -> Looked:
        options = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | options
        context = await chromium.new_context(**options)
        looked.append(Looked(await context.new_page()))
        return looked[-1]

    yield make
    for each in looked:
        await each.page.context.close()
    assert [said for each in looked for said in each.complaints] == []


@pytest_asyncio.fixture(loop_scope="session")
async def page(look: Callable[..., Awaitable[Looked]]) -> Page:
    """A page in light colours, 1280 by 900."""
    return (await look()).page


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def filled(served: str, chromium: Browser) -> str:
    """The server with four licences in its library, uploaded through the page."""
    names = ("GPL-3", "MPL-2.0", "MIT", "Apache-2.0")
    page = await (await chromium.new_context()).new_page()
    page.set_default_timeout(30_000)
    await page.goto(served)
    await page.get_by_label("Files to add").set_input_files(
        [_LICENCES / f"{name}.txt" for name in names]
    )
    await page.get_by_text("4 documents").first.wait_for()
    await page.context.close()
    return served


@pytest.fixture
def ask() -> Callable[..., Awaitable[None]]:
    """`await ask(page, url, question, strategy)` asks and waits for the end."""

    async def asked(
        page: Page, url: str, question: str = QUESTION, strategy: str = "retrieve-read"
    ) -> None:
        await page.goto(url)
        await page.get_by_label("Question").fill(question)
        await page.get_by_text("More choices").click()
        await page.get_by_label("Method").select_option(strategy)
        await page.get_by_role("button", name="Ask").click()
        await page.locator(".outcome[aria-busy=false]").wait_for()

    return asked


@pytest.fixture
def upload() -> Callable[..., Awaitable[None]]:
    """`await upload(page, url, library, {name: bytes})` fills a new library through the page."""

    async def uploaded(page: Page, url: str, library: str, files: dict[str, bytes]) -> None:
        await page.goto(f"{url}#/library")
        await page.get_by_label("New library").fill(library)
        await page.get_by_role("button", name="Create").click()
        await page.get_by_role("heading", name=library, exact=True).wait_for()
        sent = [
            {"name": name, "mimeType": "application/octet-stream", "buffer": content}
            for name, content in files.items()
        ]
        await page.get_by_label("Files to add").set_input_files(sent)
        await page.locator(".arrival b", has_text="ready").wait_for()

    return uploaded
