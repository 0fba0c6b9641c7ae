"""A real server on a loopback port, with a model that says what the question asks it to."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from colligate import Engine, Settings
from colligate.errors import ServerFailed
from colligate.models import ChatRequest
from colligate.server.app import create_app
from colligate.server.settings import Serving
from colligate.testing import ScriptedModel

TOKEN = "a-token-for-tests"

RULES = """\
# House rules

Quiet after ten.

## Bicycles

Bicycles stand in the yard, never in the hall.

## Guests

Guests may stay.

### Notes

A note on guests.

## Pets

### Notes

A note on pets.
"""


class Talker(ScriptedModel):
    """Quotes the yard's rule and repeats the question's number; some questions make it fail.

    "fail" in a question raises what a broken endpoint does. "stall" never comes back: `stalled`
    is set when it has been asked, `freed` once it was cancelled.
    """

    def __init__(self) -> None:
        super().__init__(self._say)
        self.stalled = threading.Event()
        self.freed = threading.Event()

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        if "stall" in request.messages[-1].content.rpartition("Question")[2]:
            self.stalled.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.freed.set()
        return await super().chat(request, on_token)

    @staticmethod
    def _say(call: ChatRequest) -> Any:
        asked = call.prompt.rpartition("Question")[2]
        if "fail" in asked:
            return ServerFailed("the model failed", "for this test", "do not worry")
        if "nowhere" in asked:
            return json.dumps({"statements": [], "short_answer": "", "found": False})
        number = re.search(r"number (\d+)", asked)
        said = {
            "passage": 1,
            "quote": "Bicycles stand in the yard, never in the hall.",
            "sentence": "Bicycles stand in the yard.",
        }
        short = f"number {number[1]}" if number else "in the yard"
        return json.dumps({"statements": [said], "short_answer": short, "found": True})


@pytest.fixture(scope="module")
def talker() -> Talker:
    return Talker()


@pytest.fixture
def model(talker: Talker) -> Talker:
    """The model of the server, with nothing said yet."""
    talker.calls.clear()
    talker.stalled.clear()
    talker.freed.clear()
    return talker


def write(folder: Path) -> Path:
    folder.mkdir()
    (folder / "rules.md").write_text(RULES)
    (folder / "cellar.md").write_text("# Cellar\n\nBarrels stand in the cellar.\n")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write(tmp_path / "house")


class Served:
    """`url` ends in a slash; every request needs `token`."""

    token = TOKEN

    def __init__(self, url: str) -> None:
        self.url = url


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, talker: Talker) -> Iterator[Served]:
    """One for all tests of a module, since none changes its library."""
    place = tmp_path_factory.mktemp("served")

    def engine() -> Engine:
        library = place / "library"
        return Engine(model=talker, embedder="static", library=library, settings=Settings())

    async def fill() -> None:
        async with engine() as opened:
            await opened.add([write(place / "house")])

    asyncio.run(fill())
    app = create_app(Serving(token=TOKEN), engine)
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    pause = threading.Event()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        pause.wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield Served(f"http://127.0.0.1:{port}/")
    finally:
        server.should_exit = True
        thread.join(30)
        assert not thread.is_alive()
