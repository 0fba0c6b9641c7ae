"""Commands on a library that a running `colligate serve` holds."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

from colligate.cli.progress import Watcher
from colligate.cli.remote import find_server
from colligate.core.events import Event
from colligate.library.lock import Address, LibraryLock, publish_address
from colligate.models import LabelOdds
from colligate.readers.followup import Turn
from colligate.strategies.auto.prompts import QuestionKind
from colligate.testing import ScriptedModel
from support.http_server import threaded
from support.models import NOT_FOUND

QUESTION = "When was the tower built?"


class Serving:
    """A `colligate serve` in a process of its own; `url` is where it answers."""

    def __init__(self, environment: dict[str, str], arguments: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "colligate", "serve", "--port", "0", *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self.line(r"colligate is at (\S+)")

    def line(self, pattern: str) -> str:
        """The match in the next line of standard error that fits."""
        assert self.process.stderr is not None
        said = ""
        for line in self.process.stderr:
            said += line
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(said)

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
        options = ["--model", model, "--embedder", "static", *arguments]
        started.append(Serving(colligate.environment, options))
        return started[-1]

    yield start
    for each in started:
        each.end()


def ask(colligate: Any, *options: str | Path) -> Any:
    return colligate.here("ask", QUESTION, "--wait", "0", *options)


def without_times(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer but for the seconds in it."""
    roles = answer["usage"]["by_role"].values()
    for sums in (answer["usage"], *roles):
        sums["seconds"] = 0
    answer["usage"]["split"] = {}
    return answer


def test_the_server_is_asked_and_gives_the_same(
    colligate: Any, serving: Any, tower_reader: Any, tmp_path: Path
) -> None:
    model = ["--model", f"openai:reader@{tower_reader.url}", "--embedder", "static"]
    alone = ask(colligate, "--json", *model, "--set", "k=3", "--trace", tmp_path / "alone.jsonl")
    assert alone.returncode == 0, alone.stderr
    server = serving("--token", "a-token-of-some-length")
    beside = ask(colligate, "--json", *model, "--set", "k=3", "--trace", tmp_path / "beside.jsonl")
    assert beside.returncode == 0, beside.stderr
    assert f"the server at {server.url} holds the library" in beside.stderr
    assert f"asking openai:reader@{tower_reader.url}" in beside.stderr
    expected = json.loads(alone.stdout)
    for citation in expected["citations"]:  # a server names no folder of its machine
        citation["source"] = Path(citation["source"]).name
    assert without_times(json.loads(beside.stdout)) == without_times(expected)
    traces = []
    for name in ("alone", "beside"):
        lines = [json.loads(each) for each in (tmp_path / f"{name}.jsonl").read_text().splitlines()]
        assert all(line["at"] >= 0 for line in lines)
        traces.append([line for line in lines if line["event"] not in ("noted", "progressed")])
    for passage in next(line for line in traces[0] if line["event"] == "located")["passages"]:
        passage["source"] = Path(passage["source"]).name
    unlike = {"at": 0, "seconds": 0}
    assert [{**line, **unlike} for line in traces[0]] == [{**line, **unlike} for line in traces[1]]
    assert any(line["event"] == "asked" and line["messages"] for line in traces[1])
    shown = ask(colligate)
    assert shown.returncode == 0
    assert "[1] The lighthouse" in shown.stdout
    assert "1 call" in shown.stderr


@pytest.mark.parametrize("consents", [True, False])
def test_a_person_at_the_terminal_is_asked_before_many_calls(
    colligate: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, consents: bool
) -> None:
    asked = []

    def confirm(watcher: Watcher, question: str) -> bool:
        asked.append(question)
        return consents

    monkeypatch.setattr(Watcher, "confirm", confirm)
    each = LabelOdds({kind.value: float(kind is QuestionKind.EACH) for kind in QuestionKind}, 1.0)
    model = ScriptedModel(lambda _: NOT_FOUND, labels=lambda *_: each)
    library = tmp_path / "papers"
    for file in folder.iterdir():  # too long to be read whole
        file.write_text(file.read_text("utf-8") + "It is of stone.\n\n" * 800, "utf-8")
    indexed = colligate.here("index", folder, "--embedder", "static", "--library", library)
    assert indexed.returncode == 0, indexed.stderr
    question = ("ask", "When was each of these built?", "--library", library)
    limit = ("--set", "most_documents=1")
    with threaded(tmp_path, model) as url:
        instance = httpx2.get(f"{url}healthz", trust_env=False).json()["instance"]
        publish_address(library, Address(url, None, instance, os.getpid()))
        done = colligate.here(*question, *limit)
        assert "holds the library" in done.stderr
        takes = "reading 2 documents one by one takes about 4 model calls"
        assert asked == [f"{takes} (the best 1 alone: about 3): do it?"]
        assert "read the documents one by one" in done.stderr
        assert ("--yes reads all" in done.stderr) is not consents
        assert colligate.here(*question, *limit, "--yes").returncode == 3
        assert len(asked) == 1


def test_how_it_ends_is_how_it_would_have_ended(
    colligate: Any, serving: Any, tower_reader: Any
) -> None:
    serving()
    nothing = colligate.here(
        "ask", "What is the harbour master's name?", "--max-tokens-total", "50"
    )
    assert nothing.returncode == 1
    assert "tokens" in nothing.stderr
    tower_reader.answer = '{"statements": [], "short_answer": "", "found": false}'
    assert ask(colligate).returncode == 3
    tower_reader.fail(500, "the model is broken", times=9)
    broken = ask(colligate)
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "Traceback" not in broken.stderr
    wrong = ask(colligate, "--strategy", "recomp", "--set", "encoder=st:another/model")
    assert wrong.returncode == 2
    assert "--allow-model" in wrong.stderr


def test_models_and_files_that_the_server_does_not_have_are_refused(
    colligate: Any, serving: Any, folder: Path, tower_reader: Any
) -> None:
    server = serving()
    asked = len(tower_reader.requests)
    for option, given in (
        ("--model", "openai:another"),
        ("--worker-model", "bundled"),
        ("--embedder", "minilm"),
        ("--reranker", "embedding"),
    ):
        done = ask(colligate, option, given)
        assert (done.returncode, done.stdout) == (2, "")
        (line,) = [each for each in done.stderr.splitlines() if each.startswith("colligate: ")]
        assert given in line
        assert server.url in line
    (folder / "new.md").write_text("# New\n\nThis is not in the library.\n")
    files = ask(colligate, folder)
    assert files.returncode == 2
    assert "add the files on its page, http" in files.stderr.splitlines()[-1]
    for command in ("index", "sync"):
        done = colligate.here(command, folder, "--embedder", "static")
        assert done.returncode == 1
        assert server.url in done.stderr.splitlines()[-1]
    assert len(tower_reader.requests) == asked


def test_the_servers_models_may_be_named_without_their_address(
    colligate: Any, serving: Any, tower_reader: Any
) -> None:
    serving("--embedder", "ollama/vectors")
    whole = ("--strategy", "full-context", "--model")  # it does not search
    colligate.environment["OLLAMA_HOST"] = tower_reader.url
    done = ask(colligate, *whole, "ollama/reader", "--embedder", "ollama/vectors")
    assert done.returncode == 0, done.stderr
    assert ask(colligate, *whole, "openai:reader").returncode == 2
    colligate.environment["OPENAI_BASE_URL"] = tower_reader.url
    assert ask(colligate, *whole, "openai:reader").returncode == 0


async def test_of_a_long_conversation_the_last_turns_are_sent(
    colligate: Any, serving: Any, tower_reader: Any
) -> None:
    serving()
    tower_reader.answer = '{"statements": [], "short_answer": "", "found": false}'
    server = await find_server(colligate.library)
    assert server is not None
    turns = [Turn(f"When was tower {each} built?", "In 1871.") for each in range(101)]
    answer = await server.ask(QUESTION, strategy="auto", history=turns, on_event=lambda _: None)
    assert not answer.found


def test_doctor_finds_a_library_that_a_server_holds(
    colligate: Any, serving: Any, tower_reader: Any
) -> None:
    server = serving()
    model = f"openai:reader@{tower_reader.url}"
    done = colligate.here("doctor", "--model", model, "--embedder", "static", "--json")
    (check,) = [each for each in json.loads(done.stdout)["checks"] if each["name"] == "library"]
    assert check["ok"]
    assert f"held by the server at {server.url}" in check["found"]


def test_documents_are_listed_shown_and_removed(colligate: Any, serving: Any, folder: Path) -> None:
    serving("--token", "a-token-of-some-length")
    assert ask(colligate, "--json").returncode == 0
    listed = json.loads(colligate.here("library", "list", "--json").stdout)
    tower = next(each["id"] for each in listed if "tower" in each["id"])
    assert "1871" in colligate.here("library", "show", tower, "--text").stdout
    runs = colligate.library / "runs"
    assert len(list(runs.iterdir())) == 2
    assert colligate.here("library", "remove", "no-such-document").returncode == 2
    removed = colligate.here("library", "remove", folder / "tower.md")
    assert removed.returncode == 0, removed.stderr
    assert removed.stdout.strip() == f"removed {tower}"
    assert len(json.loads(colligate.here("library", "list", "--json").stdout)) == 1
    assert list(runs.iterdir()) == []


def test_a_document_stays_while_another_file_has_it(
    colligate: Any, serving: Any, folder: Path
) -> None:
    tower, copy = folder / "tower.md", folder / "copies" / "tower.md"
    copy.parent.mkdir()
    copy.write_bytes(tower.read_bytes())
    assert colligate.here("index", folder, "--embedder", "static").returncode == 0
    serving()
    for file in (copy, tower):
        kept = colligate.here("library", "remove", file)
        assert (kept.returncode, kept.stdout) == (0, "")
        assert "other files have the same text" in kept.stderr
    both = colligate.here("library", "remove", tower, copy.parent)
    assert both.stdout.startswith("removed tower-")


def test_files_that_are_in_the_library_may_be_named(
    colligate: Any, serving: Any, folder: Path
) -> None:
    serving()
    answered = ask(colligate, "--json", folder / "tower.md")
    assert answered.returncode == 0, answered.stderr
    read = json.loads(answered.stdout)["evidence"]
    assert {each["document"].partition("-")[0] for each in read} == {"tower"}
    assert ask(colligate, folder / "harbour.md").returncode == 3


def test_a_server_follows_the_folders_of_its_library(
    colligate: Any, serving: Any, folder: Path
) -> None:
    server = serving("--watch")
    server.line(f"watching ({folder})")
    assert ask(colligate).returncode == 0
    runs = f"{server.url}api/libraries/default/runs"
    assert len(httpx2.get(runs, trust_env=False).json()) == 1
    (folder / "ferry.md").write_text("# The ferry\n\nIt sails at noon.\n")
    assert server.line("library: (.*)") == f"added {folder}/ferry.md"
    (folder / "tower.md").unlink()
    assert server.line("library: (.*)") == f"removed {folder}/tower.md"
    assert httpx2.get(runs, trust_env=False).json() == [], "the run quotes what was removed"
    for file in folder.glob("*.md"):
        file.unlink()
    assert "2 of 2 files" in server.line("warning: (.*are kept.*)")
    listed = httpx2.get(f"{server.url}api/libraries/default/documents", trust_env=False).json()
    assert {each["title"] for each in listed} == {"The ferry", "The harbour"}
    server.end()
    assert server.process.returncode == 0


def test_without_a_folder_there_is_nothing_to_follow(colligate: Any, tower_reader: Any) -> None:
    model = f"openai:reader@{tower_reader.url}"
    done = colligate.here("serve", "--port", "0", "--watch", "--model", model)
    assert done.returncode == 2
    assert "there is no folder to watch" in done.stderr


async def test_a_server_that_is_starting_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["colligate", "serve"])
    lock = LibraryLock(tmp_path)
    await lock.acquire()
    handler = type("Handler", (Stranger,), {"seen": []})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        address = Address(
            f"http://127.0.0.1:{server.server_port}/", None, "of another", os.getpid()
        )

        def see(event: Event) -> None:
            assert "for the server to start" in event.what  # type: ignore[attr-defined]
            publish_address(tmp_path, address)

        assert await find_server(tmp_path) is None
        found = await find_server(tmp_path, 30, see)
        server.shutdown()
    lock.release()
    assert found is not None
    assert found.url == address.url


def test_another_library_of_the_server(colligate: Any, serving: Any, folder: Path) -> None:
    server = serving()
    with httpx2.Client(base_url=server.url, trust_env=False, timeout=30) as client:
        assert client.post("api/libraries", json={"name": "other"}).status_code == 201
        sent = [("files", ("tower.md", (folder / "tower.md").read_bytes()))]
        job = client.post("api/libraries/other/files", files=sent).json()["job"]
        assert "event: done" in client.get(f"api/jobs/{job}/events").text
        beside = colligate.library.with_name(colligate.library.name + ".libraries") / "other"
        done = ask(colligate, "--library", beside)
        assert done.returncode == 0, done.stderr
        assert "holds the library" in done.stderr
        (run,) = client.get("api/libraries/other/runs").json()
        assert run["question"] == QUESTION


def test_a_killed_servers_address_misleads_nobody(
    colligate: Any, serving: Any, tower_reader: Any
) -> None:
    server = serving("--token", "a-token-of-some-length")
    address = colligate.library / "server.json"
    assert stat.S_IMODE(address.stat().st_mode) == 0o600
    server.end(signal.SIGKILL)
    assert address.exists()
    model = ["--model", f"openai:reader@{tower_reader.url}", "--embedder", "static"]
    done = ask(colligate, *model)
    assert done.returncode == 0, done.stderr
    assert "holds the library" not in done.stderr
    serving().end()
    assert not address.exists()


class Stranger(BaseHTTPRequestHandler):
    """Another program, at the port of an address that lies beside a library."""

    seen: list[str]

    def do_GET(self) -> None:
        self.seen.append(self.path)
        body = b'{"instance": "of another"}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.parametrize("instance", ["of another", "of the one that was"])
def test_a_strangers_address_is_not_asked(
    colligate: Any, folder: Path, tower_reader: Any, instance: str
) -> None:
    """It lies in a library from elsewhere, or of a server that was there once."""
    model = ["--model", f"openai:reader@{tower_reader.url}", "--embedder", "static"]
    assert colligate.here("index", folder, "--embedder", "static").returncode == 0
    seen: list[str] = []
    handler = type("Handler", (Stranger,), {"seen": seen})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as stranger:
        Thread(target=stranger.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{stranger.server_port}/"
        publish_address(colligate.library, Address(url, "a-secret", instance, os.getpid()))
        done = ask(colligate, *model)
        stranger.shutdown()
    assert done.returncode == 0, done.stderr
    assert seen == []


def test_two_servers_do_not_share_a_library(colligate: Any, serving: Any, folder: Path) -> None:
    serving()
    second = colligate.here("serve", "--port", "0", "--embedder", "static", "--wait", "0")
    assert second.returncode == 1
    assert "has been using it since" in second.stderr.splitlines()[-1]
    assert ask(colligate).returncode == 0


def test_an_adapter_that_a_question_names_is_one_that_the_server_allows(
    colligate: Any, serving: Any, tower_reader: Any
) -> None:
    tower_reader.models = ["reader", "router", "other"]
    named = ("--strategy", "rdr2", "--router-adapter")
    serving("--allow-model", "router")
    refused = ask(colligate, *named, "other")
    assert refused.returncode == 2
    assert "router_adapter of rdr2 cannot be set here" in refused.stderr
    assert "--allow-model" in refused.stderr
    tower_reader.requests.clear()
    ask(colligate, *named, "router")
    said = {r["model"] for r in tower_reader.requests if r["path"] == "/chat/completions"}
    assert said == {"reader", "router"}
