"""Where the extra `mcp` is not installed, and where there is nothing to serve."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

import httpx2

from colligate import Engine, Settings
from colligate.cli.app import run_command
from colligate.server.app import create_app
from colligate.server.config import ServerConfig
from colligate.testing import ScriptedModel


@pytest.fixture
def no_mcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colligate.server.mcp", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server", None)


def test_the_command_names_the_extra(
    no_mcp: None, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_command(["mcp", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "pip install 'colligate[mcp]'" in err


async def test_the_server_says_so_and_serves_the_rest(no_mcp: None, tmp_path: Path) -> None:
    def engine() -> Engine:
        library = tmp_path / "library"
        return Engine(model=ScriptedModel(), library=library, settings=Settings())

    app = create_app(ServerConfig(), engine)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8420"
        ) as client,
    ):
        response = await client.post("/mcp", json={})
        assert response.status_code == 501
        assert "colligate[mcp]" in response.json()["hint"]
        assert (await client.get("/healthz")).status_code == 200


def test_a_path_that_is_not_there_is_said_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    assert run_command(["mcp", str(tmp_path / "absent.md")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "absent.md" in err
