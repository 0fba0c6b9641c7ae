"""Told to stop, the server lets the work under way finish, or reports that it was cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from colligate.cli import main
from support.http_server import DEFAULT, QUESTION, RULES, form_of, until
from support.models import statement_reply

HALL = "Bicycles stand in the yard, never in the hall."


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


class Command:
    """`colligate serve` in a process of its own, over a model on the loopback interface."""

    def __init__(self, folder: Path, model: str, *arguments: str) -> None:
        environment = {
            **os.environ,
            "XDG_CONFIG_HOME": str(folder / "configuration"),
            "PYTHONWARNINGS": "error",
        }
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-m", "colligate.cli", "serve", "--port", "0"),
                *("--library", str(folder / "papers"), "--embedder", "static"),
                *("--model", f"openai:reader@{model}", *arguments),
            ],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.said = ""

    def line(self, pattern: str) -> str:
        """The match in the first line of standard error that fits."""
        assert self.process.stderr is not None
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


@pytest.fixture
def command(tmp_path: Path, openai_server: Any) -> Iterator[Any]:
    openai_server.answer = statement_reply(HALL, HALL, "in the yard")
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(tmp_path, openai_server.url, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@contextmanager
def answering(
    serving: Command, openai_server: Any
) -> Iterator[tuple[httpx2.Client, Iterator[str]]]:
    """The lines of a stream whose model is being asked and does not reply yet."""
    body = {"question": QUESTION, "stream": True}
    with serving.client() as client:
        job = client.post(f"{DEFAULT}/files", files=form_of(RULES)).json()["job"]
        assert "event: done" in client.get(f"/api/jobs/{job}/events").text
        openai_server.hold()
        with client.stream("POST", f"{DEFAULT}/ask", json=body) as response:
            lines = response.iter_lines()
            assert any('"event": "asking"' in line for line in lines)
            yield client, lines


def test_the_command_serves_and_stops_once_the_answer_is_out(command, openai_server):
    serving = command()
    with answering(serving, openai_server) as (_, lines):
        serving.process.send_signal(signal.SIGTERM)
        openai_server.release()
        assert any(line.startswith("event: answer") for line in lines)
    assert serving.stop() == 0, serving.said
    assert "Traceback" not in serving.said


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


def test_beyond_this_machine_a_token_is_made_and_shown_once(command):
    serving = command("--host", "0.0.0.0")
    token = serving.line(r"token: (\S+)")
    with serving.client() as client:
        assert client.get("/api/about").status_code == 401
        right = {"Authorization": f"Bearer {token}"}
        assert client.get("/api/about", headers=right).status_code == 200
    assert serving.stop() == 0
    assert serving.said.count(token) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--host", "256.0.0.1"], "cannot listen"),
        (["--token", "short"], "too short"),
    ],
)
def test_what_cannot_be_served_is_reported_in_one_line(command, arguments, words):
    serving = command(*arguments)
    _, said = serving.process.communicate(timeout=30)
    assert serving.process.returncode == 2
    assert words in said
    assert "Traceback" not in said


def test_without_the_extra_the_command_says_so(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve"]) == 1
    assert "colligate[serve]" in capsys.readouterr().err
