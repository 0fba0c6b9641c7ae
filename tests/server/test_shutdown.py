"""Told to stop, the server lets what is under way end, or says that it was cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from colligate.cli.app import run_command

RULES = {"rules.md": "# Rules\n\nBicycles stand in the hall.\n"}
ASK = "/api/libraries/default/ask"
BODY = {"question": "Where is the hall"}
REPLY = json.dumps(
    {
        "statements": [
            {
                "passage": 1,
                "quote": "Bicycles stand in the hall.",
                "sentence": "Bicycles stand in the hall.",
            }
        ],
        "short_answer": "in the hall",
        "found": True,
    }
)


async def test_a_run_under_way_ends_and_no_other_begins(
    serve: Any, add: Any, held: Any, until: Any
) -> None:
    async with serve(held, runs=1) as client:
        await add(client, RULES)
        server = client.app.state.server
        asking = asyncio.create_task(client.post(ASK, json=BODY))
        await until(lambda: held.now == 1)
        waiting = asyncio.create_task(client.post(ASK, json=BODY))
        await until(lambda: len(server.runs.of("default")) == 2)
        draining = asyncio.create_task(server.drain(20))
        assert (await waiting).status_code == 503
        refused = await client.post(ASK, json=BODY)
        assert refused.status_code == 503
        assert "retry-after" in refused.headers
        files = [("files", ("b.md", b"text"))]
        assert (await client.post("/api/libraries/default/files", files=files)).status_code == 503
        held.gate.set()
        assert (await asking).json()["found"]
        await draining


async def test_a_run_that_takes_too_long_is_recorded_as_cancelled(
    serve: Any, add: Any, held: Any, until: Any
) -> None:
    async with serve(held) as client:
        await add(client, RULES)
        asking = asyncio.create_task(client.post(ASK, json=BODY))
        await until(lambda: held.now == 1)
        await client.app.state.server.drain(0.01)
        assert (await asking).status_code == 503
        assert held.now == 0
    async with serve() as client:
        (run,) = (await client.get("/api/libraries/default/runs")).json()
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
        """What a line of standard error says, read until one fits."""
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
    openai_server.answer = REPLY
    started: list[Command] = []

    def start(*arguments: str) -> Command:
        started.append(Command(tmp_path, openai_server.url, *arguments))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


def test_the_command_serves_and_stops_once_the_answer_is_out(
    command: Any, openai_server: Any
) -> None:
    serving = command()
    with serving.client() as client:
        sent = [("files", (name, text.encode())) for name, text in RULES.items()]
        job = client.post("/api/libraries/default/files", files=sent).json()["job"]
        assert "event: done" in client.get(f"/api/jobs/{job}/events").text
        openai_server.hold()
        with client.stream("POST", ASK, json={**BODY, "stream": True}) as response:
            lines = response.iter_lines()
            assert any('"event": "asking"' in line for line in lines)
            serving.process.send_signal(signal.SIGTERM)
            openai_server.release()
            assert any(line.startswith("event: answer") for line in lines)
    assert serving.stop() == 0, serving.said
    assert "Traceback" not in serving.said


def refuses(url: httpx2.URL) -> bool:
    try:
        httpx2.get(url, trust_env=False)
    except httpx2.NetworkError:
        return True
    return False


def test_a_second_signal_ends_the_waiting(command: Any, openai_server: Any, tmp_path: Path) -> None:
    serving = command("--grace", "600")
    with serving.client() as client:
        sent = [("files", (name, text.encode())) for name, text in RULES.items()]
        job = client.post("/api/libraries/default/files", files=sent).json()["job"]
        assert "event: done" in client.get(f"/api/jobs/{job}/events").text
        openai_server.hold()
        with client.stream("POST", ASK, json={**BODY, "stream": True}) as response:
            lines = response.iter_lines()
            assert any('"event": "asking"' in line for line in lines)
            serving.process.send_signal(signal.SIGTERM)
            while not refuses(client.base_url):  # until the signal has had its effect
                pass
            assert serving.stop() == 0, serving.said
    (summary,) = (tmp_path / "papers" / "runs").glob("*.json")
    assert json.loads(summary.read_text())["state"] == "cancelled"


def test_beyond_this_machine_a_token_is_made_and_shown_once(command: Any) -> None:
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
def test_what_cannot_be_served_is_said_in_a_line(
    command: Any, arguments: list[str], words: str
) -> None:
    serving = command(*arguments)
    _, said = serving.process.communicate(timeout=30)
    assert serving.process.returncode == 2
    assert words in said
    assert "Traceback" not in said


def test_without_the_extra_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert run_command(["serve"]) == 1
    assert "colligate[serve]" in capsys.readouterr().err
