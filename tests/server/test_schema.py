"""The OpenAPI document against the server: whatever it lets be sent, no answer is a 5xx."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="it is not installed")
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

import httpx2
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import CacheConfig

from colligate import Engine
from colligate.server.app import create_app
from colligate.server.config import ServerConfig
from colligate.testing import ScriptedModel

REPLY = '{"statements": [], "short_answer": "", "found": false}'
BRIEFLY = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def app_over(folder: Path) -> Any:
    def engine() -> Engine:
        model = ScriptedModel(lambda _: REPLY)
        return Engine(model=model, embedder="static", library=folder / "papers")

    return create_app(ServerConfig(jobs=10_000, waiting=10_000, streams=10_000), engine)


SCHEMA = schemathesis.openapi.from_dict(
    app_over(Path()).openapi(),
    config=schemathesis.Config(cache=CacheConfig(enabled=False)),  # it writes where tests run
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a document and a run in it: its address, and their ids."""
    config = uvicorn.Config(
        app_over(tmp_path_factory.mktemp("server")), port=0, log_level="critical"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        assert thread.is_alive()
    base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    with httpx2.Client(base_url=base, trust_env=False, timeout=30) as client:
        sent = [("files", ("a.md", b"# A\n\nText of a document.\n"))]
        job = client.post("/api/libraries/default/files", files=sent).json()["job"]
        client.get(f"/api/jobs/{job}/events")
        (document,) = client.get("/api/libraries/default/documents").json()
        asked = client.post("/api/libraries/default/ask", json={"question": "What is it?"})
        run = asked.json()["run"]
        yield {
            "base": base,
            "name": "default",
            "document_id": document["id"],
            "run_id": run,
            "job_id": job,
            "number": "1",
        }
        assert client.get("/healthz").status_code == 200
    server.should_exit = True
    thread.join()


@SCHEMA.parametrize()
@BRIEFLY
def test_as_generated(case: Any, known: dict[str, str]) -> None:
    held_to(case, known)


@SCHEMA.exclude(method="DELETE").parametrize()
@BRIEFLY
def test_of_what_there_is(case: Any, known: dict[str, str]) -> None:
    for name in case.path_parameters or {}:
        if name in known:
            case.path_parameters[name] = known[name]
    held_to(case, known)


def held_to(case: Any, known: dict[str, str]) -> None:
    response = case.call(base_url=known["base"], timeout=30)
    case.validate_response(response, checks=[not_a_server_error])
