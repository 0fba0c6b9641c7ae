"""Servers over scripted models: in this process, and behind a real socket."""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

import httpx2

from colligate import Engine, Settings
from colligate.server import ServerConfig, create_app
from colligate.testing import ScriptedModel
from support.http_server import (
    RULES,
    Command,
    HeldModel,
    ServerClient,
    listening,
    opened,
    quoting,
    start_command,
)
from support.models import statement_reply

HALL = "Bicycles stand in the yard, never in the hall."

Serve = Callable[..., AbstractAsyncContextManager[ServerClient]]


@pytest.fixture
def held() -> HeldModel:
    return HeldModel()


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """`async with serve(model, files, **config) as client`: a server and its first documents.

    With `socket=True` it listens at a real socket: for what streams, and for hanging up.
    """

    @asynccontextmanager
    async def serving(
        model: Any = None,
        files: Mapping[str, str] = {},
        *,
        socket: bool = False,
        settings: Settings | None = None,
        **config: Any,
    ) -> AsyncIterator[ServerClient]:
        def make_engine() -> Engine:
            reader = ScriptedModel(quoting) if model is None else model
            names = {"embedder": "static", "reranker": "none"}
            return Engine(model=reader, **names, library=tmp_path / "papers", settings=settings)

        app = create_app(ServerConfig(**config), make_engine)
        if socket:
            async with listening(app) as url:
                limits = httpx2.Limits(max_connections=200)
                client = ServerClient(base_url=url, timeout=30, trust_env=False, limits=limits)
                async with _filled(client, app, files):
                    yield client
        else:
            base = "http://127.0.0.1:8420"
            transport = httpx2.ASGITransport(app)
            client = ServerClient(transport=transport, base_url=base, trust_env=False)
            async with opened(app), _filled(client, app, files):
                yield client

    return serving


@asynccontextmanager
async def _filled(client: ServerClient, app: Any, files: Mapping[str, str]) -> AsyncIterator[None]:
    async with client:
        client.server = app.state.server
        if files:
            assert (await client.add(files))["state"] == "done"
        yield


@pytest.fixture
async def client(serve: Serve) -> AsyncIterator[ServerClient]:
    """A client of a server whose library holds one page of rules."""
    async with serve(files=RULES) as opened:
        yield opened


@pytest.fixture
def command(tmp_path: Path, openai_server: Any) -> Iterator[Any]:
    openai_server.answer = statement_reply(HALL, HALL, "in the yard")
    started: list[Command] = []

    def start(*arguments: str, **how: Any) -> Command:
        started.append(start_command(tmp_path, openai_server.url, *arguments, **how))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()
