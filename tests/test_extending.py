"""The code of docs/extending.md, installed as another package would install it."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx2
import pytest

from colligate.models import ChatRequest, Message
from colligate.models.names import open_model
from colligate.testing import ScriptedModel, backend_suite
from support.http_server import parse_events, quoting, threaded
from support.plugins import environment_with, in_use
from support.web import Loopback

GUIDE = (Path(__file__).parents[1] / "docs/extending.md").read_text("utf-8")
ENTRY = re.compile(r'\[project\.entry-points\."colligate\.(\w+)"\]\n([\w-]+) = "((\w+):\w+)"\n')
BLOCK = re.compile(r"```toml\n(.*?)```\n+```python\n(.*?)```", re.S)
"""A toml block with an entry point, and the Python block that follows it."""

CAPTIONS = """1
00:00:01,000 --> 00:00:04,000
The tower is ninety metres
high.

2
00:00:05,000 --> 00:00:07,000
It was built in 1901 by Ada Holm.
"""
QUESTION = "Who built the tower? Holm"
PAGES = {"tower": "It was built in 1901 by Ada Holm.", "park": "The park has ponds."}
QUIZ = {"clue": QUESTION, "solutions": ["Ada Holm"], "pages": PAGES, "page": "tower"}
SUITE = """
title = "Quiz"
strategies = [{ name = "two-looks" }]

[[datasets]]
name = "quiz"
file = "quiz.jsonl"
format = "quiz"
metrics = ["short", "evidence", "brevity"]
"""


def write_package(folder: Path) -> Path:
    """Write every block of the guide as the module that its entry point names."""
    info = folder / "my_package-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    entries = []
    for toml, code in BLOCK.findall(GUIDE):
        kind, name, target, module = ENTRY.search(toml).groups()
        (folder / f"{module}.py").write_text(code, "utf-8")
        entries.append(f"[colligate.{kind}]\n{name} = {target}\n")
    (info / "entry_points.txt").write_text("".join(entries))
    return folder


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_package(tmp_path_factory.mktemp("package"))


@pytest.fixture(scope="module")
def ollama() -> Iterator[str]:
    """Ollama's chat API on the loopback interface, with a reader that quotes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            turns = [Message(each["role"], each["content"]) for each in body["messages"]]
            options = body["options"]
            request = ChatRequest(turns, max_tokens=options["num_predict"])
            text = quoting(request) if "Question: " in request.prompt else "Hi."
            reply = {"message": {"role": "assistant", "content": text}, "prompt_eval_count": 40}
            reply |= {"eval_count": 9, "done_reason": "stop"}
            content = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    with closing(Loopback(Handler)) as server:
        yield server.address


@pytest.fixture
def colligate(package: Path, ollama: str, tmp_path: Path) -> Callable[..., Any]:
    """Run the command line with the package installed; its model is the plug-in's."""
    model = "ollama-chat:llama3.2"
    (tmp_path / "colligate.toml").write_text(
        f'[models]\nreader = "{model}"\nembedder = "static"\n'
        f'[options."{model}"]\nurl = "{ollama}"\n'
    )
    environment = environment_with(package) | {"COLLIGATE_LIBRARY": str(tmp_path / "library")}

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "colligate", *map(str, arguments)]
        options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
        done = subprocess.run(command, timeout=120, **options)
        assert done.returncode == 0, done.stderr
        return done

    return run


def test_the_command_line_asks_with_all_of_them(colligate, tmp_path):
    (tmp_path / "talk.srt").write_text(CAPTIONS)
    done = colligate(
        "ask", QUESTION, "talk.srt", "--strategy", "two-looks", "--set", "k=3",
        "--retriever", "newest:least=5", "--trace", "trace.jsonl", "--json",
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert (answer["strategy"], answer["found"]) == ("two-looks", True)
    [citation] = answer["citations"]
    assert citation["quote"] == "It was built in 1901 by Ada Holm."
    assert answer["usage"]["input_tokens"] == 40
    assert "times of the captions are left out" in done.stdout + done.stderr
    trace = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    [looked] = [event for event in trace if event.get("event") == "looked"]
    assert looked["line"] == "look 1: 1 passages"
    assert "newest" in [event.get("how") for event in trace if event.get("event") == "retrieved"]


def test_a_bench_run_has_the_stages_and_the_metric(colligate, tmp_path):
    (tmp_path / "quiz.jsonl").write_text(json.dumps(QUIZ) + "\n")
    (tmp_path / "quiz.toml").write_text(SUITE)
    colligate("bench", "run", "quiz.toml", "--data", ".", "--out", "run")
    [row] = [json.loads(line) for line in (tmp_path / "run/rows.jsonl").read_text().splitlines()]
    assert row["strategy"] == "two-looks"
    assert row["outcome"]["stages"] == {"look 1": ["tower", "park"]}
    metrics = row["metrics"]
    assert (metrics["em"], metrics["gold_any_look 1"], metrics["words"]) == (0.0, 1.0, 9.0)


def test_the_server_streams_the_methods_events(package, tmp_path):
    with in_use(package), threaded(tmp_path, ScriptedModel(quoting)) as url:
        library = f"{url}api/libraries/default"
        with httpx2.Client(trust_env=False, timeout=60) as client:
            files = [("files", ("talk.srt", CAPTIONS.encode()))]
            job = client.post(f"{library}/files", files=files).json()["job"]
            client.get(f"{url}api/jobs/{job}/events")
            body = {"question": QUESTION, "strategy": "two-looks", "stream": True}
            events = parse_events(client.post(f"{library}/ask", json=body).text)
    [looked] = [data for _, data in events if data.get("event") == "looked"]
    assert looked["line"] == "look 1: 1 passages"
    assert events[-1][1]["citations"][0]["quote"] == "It was built in 1901 by Ada Holm."


@pytest.mark.parametrize("check", backend_suite)
async def test_the_backend_keeps_the_promises_of_a_chat_model(package, ollama, check):
    with in_use(package):
        await check(open_model("ollama-chat:llama3.2", options={"url": ollama}))


def test_the_method_passes_the_suite_as_the_guide_says(package, tmp_path):
    """In a folder of its own, with pytest and no plug-in of it."""
    [suite] = re.findall(r"```python\n(import asyncio\n.*?strategy_suite.*?)```", GUIDE, re.S)
    (tmp_path / "test_my_method.py").write_text(suite)
    command = [sys.executable, "-m", "pytest", "-q", "test_my_method.py"]
    environment = environment_with(package) | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    options = {"env": environment, "cwd": tmp_path, "capture_output": True, "text": True}
    done = subprocess.run(command, timeout=300, **options)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_parameters_of_the_method_are_explained(colligate):
    assert "passages of a look" in colligate("strategies", "two-looks").stdout
