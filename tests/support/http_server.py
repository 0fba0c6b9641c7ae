"""colligate's server under test: in this process, behind a socket, or in a thread of its own."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI

from colligate import Engine, Settings
from colligate.models import ChatRequest
from colligate.server import ServerConfig, create_app
from colligate.server.connections import SECONDS_KEPT, Connection
from colligate.server.state import ServerState
from colligate.testing import ScriptedModel
from support.models import NOT_FOUND, statement_reply
from support.prompts import passages_in

RULES = {"rules.md": "# Rules\n\nBicycles stand in the yard, never in the hall.\n"}
QUESTION = "Where do bicycles stand? hall"
DEFAULT = "/api/libraries/default"


def quoting(call: ChatRequest) -> str:
    """A reader that quotes the sentence of a passage with the question's last word."""
    prompt = call.messages[-1].content
    if "Last question: " in prompt:  # of a conversation, to be completed
        return prompt.rpartition("Last question: ")[2]
    asked = re.findall(r"Question: (.*)", prompt)[-1]
    words = re.findall(r"\w+", asked)
    for number, text in passages_in(prompt).items():
        for sentence in re.findall(r"[^.\n]+\.", text):
            if words and re.search(rf"\b{re.escape(words[-1])}\b", sentence):
                quote = sentence.strip()
                reply = json.loads(statement_reply(quote, quote, quote))
                reply["statements"][0]["passage"] = number
                return json.dumps(reply)
    return NOT_FOUND


class HeldModel(ScriptedModel):
    """A reader whose replies wait until `gate` is set; `now` counts those that wait."""

    def __init__(self, reply: Callable[[ChatRequest], str] = quoting) -> None:
        super().__init__(reply)
        self.gate = asyncio.Event()
        self.now = 0
        self.most = 0

    async def chat(self, request: ChatRequest, on_token: Any = None) -> Any:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.gate.wait()
            return await super().chat(request, on_token)
        finally:
            self.now -= 1


class ServerClient(httpx2.AsyncClient):
    """A client of a server under test; `server` is the server's own state."""

    server: ServerState

    async def ask(
        self, question: str = QUESTION, *, library: str = "default", **body: Any
    ) -> httpx2.Response:
        path = f"/api/libraries/{library}/ask"
        return await self.post(path, json={"question": question, **body})

    def begin(self, *args: Any, **how: Any) -> asyncio.Task[httpx2.Response]:
        """Ask without waiting for the answer."""
        return asyncio.create_task(self.ask(*args, **how))

    async def add(self, files: Mapping[str, str | bytes], library: str = "default") -> Any:
        """Upload files; the job when it has ended."""
        job = await self.upload(files, library)
        return (await self.events(f"/api/jobs/{job}/events"))[-1][1]

    async def upload(self, files: Mapping[str, str | bytes], library: str = "default") -> str:
        response = await self.post(f"/api/libraries/{library}/files", files=form_of(files))
        assert response.status_code == 202, response.text
        return str(response.json()["job"])

    async def events(self, path: str, **headers: str) -> list[tuple[str, Any]]:
        return parse_events((await self.get(path, headers=headers)).text)

    async def listed(self, what: str, library: str = "default") -> list[dict[str, Any]]:
        """The "documents" or "runs" of a library."""
        return (await self.get(f"/api/libraries/{library}/{what}")).json()

    async def document(self, title: str) -> str:
        """The id of a document."""
        found = await self.listed("documents")
        return str(next(each["id"] for each in found if each["title"] == title))


def form_of(files: Mapping[str, str | bytes]) -> list[Any]:
    return [
        ("files", (name, text.encode() if isinstance(text, str) else text))
        for name, text in files.items()
    ]


def parse_events(text: str) -> list[tuple[str, Any]]:
    """The names and data of server-sent events."""
    found = []
    for block in text.split("\n\n"):
        lines = (line for line in block.splitlines() if not line.startswith(":"))
        fields = dict(line.split(": ", 1) for line in lines)
        if fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, which must come true within 20 seconds."""
    async with asyncio.timeout(20):
        while True:
            if condition():
                return
            await asyncio.sleep(0.005)


@asynccontextmanager
async def opened(app: FastAPI) -> AsyncIterator[None]:
    """The app, open; in a task of its own, since a fixture's two halves are in different ones."""
    ready, stop = asyncio.Event(), asyncio.Event()

    async def live() -> None:
        async with app.router.lifespan_context(app):
            ready.set()
            await stop.wait()

    task = asyncio.create_task(live())
    opening = asyncio.create_task(ready.wait())
    await asyncio.wait([task, opening], return_when=asyncio.FIRST_COMPLETED)
    try:
        if opening.done():
            yield
    finally:
        opening.cancel()
        stop.set()
        await task


@asynccontextmanager
async def listening(app: FastAPI) -> AsyncIterator[str]:
    """The app behind a socket of this machine, with limits for connections; yields its URL."""
    limits = app.state.server.config
    http = partial(Connection, limits=limits, most=limits.connections)
    seconds = {"timeout_keep_alive": SECONDS_KEPT, "timeout_graceful_shutdown": 5}
    config = uvicorn.Config(app, http=http, ws="none", port=0, log_level="warning", **seconds)
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    try:
        yield _url(server)
    finally:
        server.should_exit = True
        await task


@contextmanager
def threaded(
    folder: Path, model: Any = None, settings: Settings | None = None, **config: Any
) -> Iterator[str]:
    """A server in a thread, over the library `folder`/papers; yields its URL, which ends in /."""

    def make_engine() -> Engine:
        reader = model or ScriptedModel(lambda _: NOT_FOUND)
        names = {"embedder": "static", "reranker": "none", "library": folder / "papers"}
        return Engine(model=reader, **names, settings=settings or Settings())

    app = create_app(ServerConfig(**config), make_engine)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=2)
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        thread.join(0.02)
    try:
        yield _url(server) + "/"
    finally:
        server.should_exit = True
        thread.join(60)
        if thread.is_alive():
            pytest.fail("the server does not stop")


def _url(server: uvicorn.Server) -> str:
    return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"


class Command:
    """`colligate serve` in a process of its own."""

    def __init__(
        self, environment: Mapping[str, str], *arguments: str, before: Sequence[str] = ()
    ) -> None:
        serve = (sys.executable, "-m", "colligate", "serve", "--port", "0")
        command = [*before, *serve, *arguments]
        pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(command, env=environment, **pipes)
        self.said = ""

    def line(self, pattern: str) -> str:
        """The match in the first line of standard error that fits."""
        for line in self.process.stderr:
            self.said += line
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(self.said)

    def client(self, **headers: str) -> httpx2.Client:
        url = self.line(r"colligate is at (\S+)").replace("0.0.0.0", "127.0.0.1")
        return httpx2.Client(base_url=url, headers=headers, trust_env=False, timeout=30)

    def stop(self) -> int:
        """Its exit status after SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        _, rest = self.process.communicate(timeout=30)
        self.said += rest
        return self.process.returncode


def start_command(folder: Path, model: str, *arguments: str, before: Sequence[str] = ()) -> Command:
    """Serve the library `folder`/papers, over a model on the loopback interface."""
    settings = str(folder / "configuration")
    environment = {**os.environ, "XDG_CONFIG_HOME": settings, "PYTHONWARNINGS": "error"}
    named = ("--library", str(folder / "papers"), "--model", f"openai:reader@{model}")
    return Command(environment, "--embedder", "static", *named, *arguments, before=before)
