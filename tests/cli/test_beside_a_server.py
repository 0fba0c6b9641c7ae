"""Commands on a library that a running `colligate serve` answers from: both work at once."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from support.http_server import Command

pytestmark = pytest.mark.posix
QUESTION = "When was the tower built?"


class Serving(Command):
    """A `colligate serve`; `url` is where it answers."""

    def __init__(self, environment: dict[str, str], *arguments: str) -> None:
        super().__init__(environment, *arguments)
        self.url = self.line(r"colligate is at (\S+)")

    def get(self, what: str) -> Any:
        """The documents or the runs of its library."""
        return httpx2.get(f"{self.url}api/libraries/default/{what}", trust_env=False).json()

    def ask(self) -> Any:
        """Its answer to the question."""
        place = f"{self.url}api/libraries/default/ask"
        sent = httpx2.post(place, json={"question": QUESTION}, trust_env=False, timeout=60)
        assert sent.status_code == 200, sent.text
        return sent.json()

    def end(self, signal_: signal.Signals = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal_)
        self.process.communicate(timeout=30)


@pytest.fixture
def serving(colligate: Any, tower_reader: Any, folder: Path) -> Iterator[Callable[..., Serving]]:
    """`serving(option...)` is a server over the two documents of `folder`."""
    assert colligate.here("index", folder, "--embedder", "static").returncode == 0
    started: list[Serving] = []

    def start(*arguments: str) -> Serving:
        model = f"openai:reader@{tower_reader.url}"
        options = ("--model", model, "--embedder", "static", *arguments)
        started.append(Serving(colligate.environment, *options))
        return started[-1]

    yield start
    for each in started:
        each.end()


def ask(colligate: Any, tower_reader: Any, *options: str | Path) -> Any:
    model = ["--model", f"openai:reader@{tower_reader.url}", "--embedder", "static"]
    return colligate.here("ask", QUESTION, "--json", *model, *options)


def test_a_question_is_answered_beside_a_server_as_without_one(colligate, serving, tower_reader):
    alone = ask(colligate, tower_reader)
    assert alone.returncode == 0, alone.stderr
    server = serving("--token", "a-token-of-some-length")
    beside = ask(colligate, tower_reader)
    assert beside.returncode == 0, beside.stderr
    answers = [json.loads(each.stdout)["citations"] for each in (alone, beside)]
    assert answers[0] == answers[1] != []
    assert list((colligate.library / "runs").glob("*")) == []  # the server was not asked
    server.end()
    assert server.process.returncode == 0


def test_the_server_sees_what_commands_add_and_remove(colligate, serving, folder):
    server = serving()
    assert "1871" in server.ask()["answer"]
    assert len(server.get("runs")) == 1
    (folder / "ferry.md").write_text("# The ferry\n\nIt sails at noon.\n")
    for command in ("index", "sync"):
        done = colligate.here(command, folder, "--embedder", "static")
        assert done.returncode == 0, done.stderr
    titles = {each["title"] for each in server.get("documents")}
    assert titles == {"The ferry", "The harbour", "The lighthouse"}
    listed = json.loads(colligate.here("library", "list", "--json").stdout)
    assert {each["title"] for each in listed} == titles
    removed = colligate.here("library", "remove", folder / "tower.md")
    assert removed.returncode == 0, removed.stderr
    assert {each["title"] for each in server.get("documents")} == titles - {"The lighthouse"}
    assert server.get("runs") == []
    assert list((colligate.library / "runs").iterdir()) == []
    assert colligate.here("library", "verify").stdout.strip() == "the library is whole"


def test_a_killed_server_leaves_nothing_in_the_way(colligate, serving, tower_reader):
    serving().end(signal.SIGKILL)
    assert ask(colligate, tower_reader).returncode == 0
    assert "1871" in serving().ask()["answer"]
