"""Told to stop, the server lets the work under way finish, or reports that it was cancelled."""

import asyncio
import json
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from colligate.cli import main
from colligate.server.tokens import Right, TokenFile
from support.http_server import DEFAULT, QUESTION, RULES, Command, form_of, until


async def test_a_run_under_way_ends_and_no_other_begins(serve, held):
    async with serve(held, RULES, runs=1) as client:
        asking = client.begin()
        await until(lambda: held.now == 1)
        waiting = client.begin()
        await until(lambda: len(client.server.runs.list_runs("default")) == 2)
        draining = asyncio.create_task(client.server.drain(20))
        assert (await waiting).status_code == 503
        refused = await client.ask()
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        files = form_of({"b.md": "text"})
        assert (await client.post(f"{DEFAULT}/files", files=files)).status_code == 503
        held.gate.set()
        assert (await asking).json()["found"]
        await draining
        await client.server.libraries.aclose()  # a connection may outlive them
        assert (await client.ask()).status_code == 503


async def test_a_run_that_takes_too_long_is_recorded_as_cancelled(serve, held):
    async with serve(held, RULES) as client:
        asking = client.begin()
        await until(lambda: held.now == 1)
        await client.server.drain(0.01)
        assert (await asking).status_code == 503
        assert held.now == 0
    async with serve() as client:
        (run,) = await client.listed("runs")
        assert run["state"] == "cancelled"


@contextmanager
def answering(
    serving: Command, openai_server: Any, token: str = "none"
) -> Iterator[tuple[httpx2.Client, Iterator[str]]]:
    """The lines of a stream whose model is being asked and does not reply yet."""
    body = {"question": QUESTION, "stream": True}
    with serving.client(Authorization=f"Bearer {token}") as client:
        job = client.post(f"{DEFAULT}/files", files=form_of(RULES)).json()["job"]
        assert "event: done" in client.get(f"/api/jobs/{job}/events").text
        openai_server.hold()
        with client.stream("POST", f"{DEFAULT}/ask", json=body) as response:
            lines = response.iter_lines()
            assert any('"event": "asking"' in line for line in lines)
            yield client, lines


@pytest.mark.posix
def test_the_command_serves_and_stops_once_the_answer_is_out(command, openai_server, tmp_path):
    tokens = TokenFile(tmp_path / "tokens.json")
    ana = tokens.make("ana", [Right.ADMIN])
    serving = command("--host", "0.0.0.0", "--tokens", str(tokens.path))
    with answering(serving, openai_server, ana) as (client, lines):
        assert httpx2.get(client.base_url.join("api/about"), trust_env=False).status_code == 401
        serving.process.send_signal(signal.SIGTERM)
        openai_server.release()
        assert any(line.startswith("event: answer") for line in lines)
    assert serving.stop() == 0, serving.said
    assert "Traceback" not in serving.said
    assert '"who": "ana", "method": "POST", "route": "/api/libraries/{name}/ask"' in serving.said


@pytest.mark.posix
def test_beyond_this_machine_a_token_is_made_and_shown_once(command):
    serving = command("--host", "0.0.0.0")
    token = serving.line(r"token: (\S+)")
    with serving.client(Authorization=f"Bearer {token}") as client:
        assert client.get("/api/about").status_code == 200
    assert serving.stop() == 0
    assert serving.said.count(token) == 1


@pytest.mark.posix
def test_a_second_signal_ends_the_waiting(command, openai_server, tmp_path):
    serving = command("--grace", "600")
    with answering(serving, openai_server) as (client, _):
        serving.process.send_signal(signal.SIGTERM)
        while not refuses(client.base_url):  # until the signal has had its effect
            pass
        assert serving.stop() == 0, serving.said
    (summary,) = (tmp_path / "papers" / "runs").glob("*.json")
    assert json.loads(summary.read_text())["state"] == "cancelled"


def refuses(url: httpx2.URL) -> bool:
    try:
        httpx2.get(url, trust_env=False)
    except httpx2.NetworkError:
        return True
    return False


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "256.0.0.1"], "cannot listen"),
        (["--host", "a..b"], "cannot listen at a..b"),
        (["--token", "short"], "too short"),
    ],
)
def test_what_cannot_be_served_is_reported_in_one_line(tmp_path, capsys, arguments, words):
    assert main(["serve", "--library", str(tmp_path), *arguments]) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("colligate: ")
    assert words in line


def test_without_the_extra_the_command_says_so(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "colligate.server.app", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve"]) == 1
    assert "colligate[serve]" in capsys.readouterr().err
