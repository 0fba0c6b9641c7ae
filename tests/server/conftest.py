"""Servers over scripted models: in this process, and behind a real socket."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

import httpx2
import uvicorn
from fastapi import FastAPI

from colligate import Engine
from colligate.models import ChatRequest
from colligate.server.app import create_app
from colligate.server.settings import Serving
from colligate.testing import ScriptedModel

BASE = "http://127.0.0.1:8420"
RULES = "# Rules\n\nBicycles stand in the yard, never in the hall.\n"

Client = httpx2.AsyncClient
Serve = Callable[..., AbstractAsyncContextManager[Client]]


def quoting(call: ChatRequest) -> str:
    """A reader that quotes the sentence of a passage with the question's last word."""
    prompt = call.messages[-1].content
    asked = re.findall(r"\w+", re.findall(r"Question: (.*)", prompt)[-1])
    for number, text in re.findall(r'<passage number="(\d+)"[^>]*>\n(.*?)</passage ', prompt, re.S):
        for sentence in re.findall(r"[^.\n]+\.", text):
            if asked and re.search(rf"\b{re.escape(asked[-1])}\b", sentence):
                quote = sentence.strip()
                said = {"passage": int(number), "quote": quote, "sentence": quote}
                reply = {"statements": [said], "short_answer": quote, "found": True}
                return json.dumps(reply)
    return json.dumps({"statements": [], "short_answer": "", "found": False})


class Held(ScriptedModel):
    """A reader whose replies wait until `gate` is set; `asked` counts who came, `left` who went."""

    def __init__(self) -> None:
        super().__init__(quoting)
        self.gate = asyncio.Event()
        self.asked = 0
        self.left = 0
        self.now = 0
        self.most = 0

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
            return await super().chat(request, on_token)
        finally:
            self.left += 1
            self.now -= 1


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[None]:
    """The app, open; in a task of its own, since a fixture's two halves are in different ones."""
    ready, stop = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.router.lifespan_context(app):
            ready.set()
            await stop.wait()

    task = asyncio.create_task(live())
    opened = asyncio.create_task(ready.wait())
    await asyncio.wait([task, opened], return_when=asyncio.FIRST_COMPLETED)
    try:
        if opened.done():
            yield
    finally:
        opened.cancel()
        stop.set()
        await task


@pytest.fixture
def held() -> Held:
    return Held()


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Any]:
    """`await until(condition)`, which must come true within 20 seconds."""

    async def wait(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while True:
                if condition():
                    return
                await asyncio.sleep(0.005)

    return wait


@pytest.fixture
def make_app(tmp_path: Path) -> Callable[..., FastAPI]:
    """`make_app(model=..., **settings)` is an app over one library, whichever model is given."""

    def make(model: Any = None, **settings: Any) -> FastAPI:
        reader = ScriptedModel(quoting) if model is None else model

        def engine() -> Engine:
            return Engine(model=reader, embedder="static", library=tmp_path / "papers")

        return create_app(Serving(**settings), engine)

    return make


@pytest.fixture
def serve(make_app: Callable[..., FastAPI]) -> Serve:
    """`async with serve(...) as client`: a client of an app in this process, without a socket."""

    @asynccontextmanager
    async def serving(model: Any = None, **settings: Any) -> AsyncIterator[Client]:
        app = make_app(model, **settings)
        transport = httpx2.ASGITransport(app)
        async with (
            running(app),
            Client(transport=transport, base_url=BASE, trust_env=False) as client,
        ):
            client.app = app  # type: ignore[attr-defined]
            yield client

    return serving


@pytest.fixture
def listen(make_app: Callable[..., FastAPI], until: Any) -> Serve:
    """The same behind a socket of this machine: for what streams, and for hanging up."""

    @asynccontextmanager
    async def listening(model: Any = None, **settings: Any) -> AsyncIterator[Client]:
        app = make_app(model, **settings)
        config = uvicorn.Config(app, port=0, log_level="warning", timeout_graceful_shutdown=5)
        server = uvicorn.Server(config)
        task = asyncio.create_task(server.serve())
        await until(lambda: server.started)
        port = server.servers[0].sockets[0].getsockname()[1]
        limits = httpx2.Limits(max_connections=200)
        try:
            async with Client(
                base_url=f"http://127.0.0.1:{port}", timeout=30, trust_env=False, limits=limits
            ) as client:
                client.app = app  # type: ignore[attr-defined]
                yield client
        finally:
            server.should_exit = True
            await task

    return listening


@pytest.fixture
def add() -> Callable[..., Any]:
    """`await add(client, {name: text}, library=...)` uploads files; the job when it has ended."""
    return add_files


async def add_files(
    client: Client, files: dict[str, str | bytes], library: str = "default"
) -> dict[str, Any]:
    sent = [("files", (name, _bytes(content))) for name, content in files.items()]
    response = await client.post(f"/api/libraries/{library}/files", files=sent)
    assert response.status_code == 202, response.text
    return await ended(client, response.json()["job"])


async def ended(client: Client, job: str) -> dict[str, Any]:
    events = (await client.get(f"/api/jobs/{job}/events")).text
    last = events.strip().rpartition("data: ")[2]
    said: dict[str, Any] = json.loads(last)
    return said


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


@pytest.fixture
def events() -> Callable[[str], list[tuple[str, Any]]]:
    """`events(text)`: the names and data of server-sent events."""

    def parse(text: str) -> list[tuple[str, Any]]:
        found = []
        for block in text.replace("\r\n", "\n").split("\n\n"):
            fields = dict(
                line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")
            )
            if fields:
                found.append((fields["event"], json.loads(fields["data"])))
        return found

    return parse


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[Client]:
    """A client of a server whose library holds one page of rules."""
    async with serve() as opened:
        job = await add_files(opened, {"rules.md": RULES})
        assert job["state"] == "done"
        yield opened
