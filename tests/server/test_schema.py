"""The OpenAPI document against the server: whatever it allows, no answer is a 5xx."""

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("schemathesis", reason="it is not installed")
pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

import httpx2
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.config import CacheConfig

from colligate import Engine
from colligate.server import ServerConfig, create_app
from support.http_server import DEFAULT, form_of, threaded

BRIEFLY = settings(
    max_examples=10, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
SCHEMA = schemathesis.openapi.from_dict(
    create_app(ServerConfig(), Engine).openapi(),
    config=schemathesis.Config(cache=CacheConfig(enabled=False)),  # it writes where tests run
)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a document and a run: its address, and their ids."""
    folder = tmp_path_factory.mktemp("server")
    limits = {"jobs": 10_000, "waiting": 10_000}
    with (
        threaded(folder, **limits) as base,
        httpx2.Client(base_url=base, trust_env=False, timeout=30) as client,
    ):
        files = form_of({"a.md": "# A\n\nText of a document.\n"})
        job = client.post(f"{DEFAULT}/files", files=files).json()["job"]
        client.get(f"/api/jobs/{job}/events")
        (document,) = client.get(f"{DEFAULT}/documents").json()
        run = client.post(f"{DEFAULT}/ask", json={"question": "What is it?"}).json()["run"]
        known = {"base": base, "name": "default", "document_id": document["id"]}
        yield known | {"run_id": run, "job_id": job, "number": "1"}
        assert client.get("/healthz").status_code == 200


@pytest.mark.real
@SCHEMA.parametrize()
@BRIEFLY
def test_generated_requests(case, known):
    check(case, known)


@SCHEMA.exclude(method="DELETE").parametrize()
@BRIEFLY
def test_generated_requests_for_what_exists(case, known):
    for name in case.path_parameters or {}:
        if name in known:
            case.path_parameters[name] = known[name]
    check(case, known)


def check(case: Any, known: dict[str, str]) -> None:
    response = case.call(base_url=known["base"], timeout=30)
    case.validate_response(response, checks=[not_a_server_error])
