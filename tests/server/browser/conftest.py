"""A real server with a scripted reader, and Chromium to look at its page with."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")
pytest.importorskip("playwright", reason="Playwright is not installed")

import pytest_asyncio
import uvicorn
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright

from colligate import Engine
from colligate.models import Capability, ChatRequest
from colligate.server.app import create_app
from colligate.server.settings import Serving
from colligate.settings import Settings
from colligate.testing import ScriptedModel

_NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_LICENCES = Path(__file__).parents[3] / "examples" / "licences"
QUESTION = (
    "How many days does a violator have to cure a first violation under the GPL version 3, "
    "and how many under the Mozilla Public License 2.0?"
)


def _brain() -> Any:
    spec = importlib.util.spec_from_file_location("brain", Path(__file__).with_name("brain.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Reader(ScriptedModel):
    """Plays every part; never replies to a question that says so, and fails where one says so."""

    def __init__(self) -> None:
        brain = _brain()

        def reply(call: ChatRequest) -> str | BaseException:
            if "please fail" in call.prompt:
                return RuntimeError("the reader's own fault")
            told = [{"role": each.role, "content": each.content} for each in call.messages]
            said: str = brain.reply(told, dict(call.schema) if call.schema else None)
            return said

        super().__init__(
            reply,
            capabilities=[Capability.CHAT, Capability.STRUCTURED],
            context_tokens=32_000,
            likelihood=lambda prefix, _: [-1.0 - len(prefix) % 7] * 4,
            attention=lambda _, spans: [1.0 / (1 + (end - start) % 11) for start, end in spans],
        )

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        if "never reply" in request.prompt:
            await asyncio.Event().wait()  # until the run is cancelled
        return await super().chat(request, on_token)


class Served:
    """A server in a thread of its own."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        def engine() -> Engine:
            return Engine(
                model=Reader(), embedder="static", library=folder / "papers", settings=Settings()
            )

        app = create_app(Serving(**settings), engine)
        config = uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2)
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise RuntimeError("the server did not start")
            self._thread.join(0.02)
        port = self._server.servers[0].sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/"

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(15)


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


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server; tests that change its library make one of their own in it."""
    server = Served(tmp_path_factory.mktemp("served"), runs=8)
    try:
        yield server
    finally:
        server.close()


TOKEN = "open-sesame-open-sesame"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Served]:
    """A server that wants the token "open-sesame-open-sesame"."""
    server = Served(tmp_path, token=TOKEN)
    try:
        yield server
    finally:
        server.close()


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
async def filled(served: Served, chromium: Browser) -> Served:
    """The server with four licences in its library, uploaded through the page."""
    names = ("GPL-3", "MPL-2.0", "MIT", "Apache-2.0")
    page = await (await chromium.new_context()).new_page()
    page.set_default_timeout(30_000)
    await page.goto(served.url)
    await page.get_by_label("Files to add").set_input_files(
        [_LICENCES / f"{name}.txt" for name in names]
    )
    await page.locator("#question").wait_for()
    await page.context.close()
    return served


@pytest.fixture
def ask() -> Callable[..., Awaitable[None]]:
    """`await ask(page, served, question, strategy)` asks and waits until the run has ended."""

    async def asked(
        page: Page, served: Served, question: str = QUESTION, strategy: str = "retrieve-read"
    ) -> None:
        await page.goto(served.url)
        await page.get_by_label("Question").fill(question)
        await page.get_by_label("Strategy").select_option(strategy)
        await page.get_by_role("button", name="Ask").click()
        await page.locator(".outcome[aria-busy=false]").wait_for()

    return asked


@pytest.fixture
def upload() -> Callable[..., Awaitable[None]]:
    """`await upload(page, served, library, {name: bytes})` fills a new library through the page."""

    async def uploaded(page: Page, served: Served, library: str, files: dict[str, bytes]) -> None:
        await page.goto(f"{served.url}#/library")
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
