"""A real server on a loopback port, with a model that answers as the question demands."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colligate import Engine, Settings
from colligate.errors import ServerFailed
from colligate.models import ChatRequest
from colligate.server.tokens import Right, TokenFile
from colligate.testing import ScriptedModel
from support.http_server import threaded
from support.models import NOT_FOUND, statement_reply

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
    """Quotes the yard's rule; some questions make it fail.

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
        if call.schema is None:  # a question of a conversation is to be completed
            return call.prompt.rpartition("Last question: ")[2]
        question = call.prompt.rpartition("Question")[2]
        if "fail" in question:
            return ServerFailed("the model failed", "for this test", "do not worry")
        quote = "Bicycles stand in the yard, never in the hall."
        if "where" in call.schema.get("properties", {}):  # of the shape that a test asks for
            value = {"passage": 1, "quote": quote, "value": "<the yard>"}
            return json.dumps({"where": value, "how_many": None})
        if "nowhere" in question:
            return NOT_FOUND
        return statement_reply(quote, "Bicycles stand in the yard.", "in the yard")


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


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, talker: Talker) -> Iterator[SimpleNamespace]:
    """A server's `url`, which ends in a slash, and the `token` that every request needs.

    `reader` and `asker` are tokens with one right.

    One for all tests of a module, since none changes its library.
    """
    place = tmp_path_factory.mktemp("served")

    async def fill() -> None:
        library = place / "papers"
        async with Engine(
            model=talker, embedder="static", library=library, settings=Settings()
        ) as e:
            await e.add([write(place / "house")])

    asyncio.run(fill())
    tokens = TokenFile(place / "tokens.json")
    reader, asker = tokens.make("reader", [Right.READ]), tokens.make("asker", [Right.ASK])
    with threaded(place, talker, token=TOKEN, tokens=tokens.path) as url:
        yield SimpleNamespace(url=url, token=TOKEN, reader=reader, asker=asker)
