"""Where an extra is not installed, and where there is nothing to serve."""

import subprocess
import sys

import pytest

from colligate.cli import main


@pytest.fixture
def no_mcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colligate.server.mcp", raising=False)
    monkeypatch.setitem(sys.modules, "mcp.server", None)


@pytest.mark.parametrize(
    ("made_by", "command"),
    [
        ("", "; pip install"),
        ("pipx_metadata.json", "; pipx runpip colli install"),
        ("uv-receipt.toml", "; uv pip install --python {}"),
    ],
)
def test_the_command_names_the_extra_and_what_installs_it_here(
    no_mcp, capsys, tmp_path, monkeypatch, made_by, command
):
    prefix = tmp_path / "colli"
    prefix.mkdir()
    if made_by:
        (prefix / made_by).touch()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    assert main(["mcp", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{command.format(prefix)} 'colligate[mcp]'" in err


async def test_the_server_reports_it_and_serves_the_rest(no_mcp, serve):
    async with serve() as client:
        response = await client.post("/mcp", json={})
        assert response.status_code == 501
        assert "colligate[mcp]" in response.json()["hint"]
        assert (await client.get("/healthz")).status_code == 200


def test_a_missing_path_is_reported_at_once(capsys, tmp_path):
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    assert main(["mcp", str(tmp_path / "absent.md")]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "absent.md" in err


def test_the_mcp_command_needs_no_extra_but_its_own():
    pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
    hide = "import sys; sys.modules.update(fastapi=None, prometheus_client=None, uvicorn=None)"
    code = f"{hide}; import colligate.server.mcp"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
