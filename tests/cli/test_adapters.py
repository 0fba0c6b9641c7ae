"""Adapters in use: named by a flag, by `--set` or in `colligate.toml`, for the steps they are for.

The server is one as vLLM is: an adapter is another model of it.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUESTION = "When was the tower built?"


@pytest.fixture
def server(tower_reader: Any) -> Any:
    """A base that reads, and adapters that route and refine; the base can do neither."""
    read = tower_reader.answer

    def answer(body: dict[str, Any]) -> str:
        system, prompt = (body["messages"][at]["content"] for at in (0, -1))
        if body["model"].startswith("router"):
            shown = re.findall(r"^\t*(\d+): (The tower was built.*)$", prompt, re.MULTILINE)
            return "\n".join(f"[ANSWER] {node}: {text[:20]}" for node, text in shown)
        if "[ANSWER]" in system + prompt:
            return "Cannot answer"
        if "Local" in system:
            return "[Local]"
        return str(read(body))

    tower_reader.answer = answer
    tower_reader.models = ["base", "router", "router-2", "selection", "scope"]
    return tower_reader


@pytest.fixture
def ask(colligate: Any, server: Any, folder: Path, here: Path) -> Callable[..., Any]:
    def run(*more: str | Path, strategy: str = "rdr2") -> Any:
        server.requests.clear()
        return colligate.here(
            *("ask", QUESTION, folder, "--strategy", strategy),
            *("--model", f"openai:base@{server.url}", "--embedder", "static", *more),
        )

    return run


def asked(server: Any) -> Counter[str]:
    """How often each model was asked."""
    return Counter(r["model"] for r in server.requests if r["path"] == "/chat/completions")


def test_the_router_alone_is_asked_under_its_adapter(ask, server):
    done = ask("--set", "router_adapter=router", "--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["short_answer"] == "1871"
    assert "accepted by the router" in answer["evidence"][0]["reason"]
    assert asked(server) == {"router": 3, "base": 1}
    [first, *_] = [r for r in server.requests if r.get("model") == "router"]
    assert "[ANSWER] for a paragraph" in first["messages"][0]["content"]  # as it was trained
    assert "response_format" not in first


@pytest.mark.parametrize(
    ("more", "strategy", "status", "said"),
    [
        (["--set", "router_adapter=rooter"], "rdr2", 1, "no adapter rooter: its server has base, "),
        (["--set", "router_adapter=x"], "direct", 2, "direct has no parameter 'router_adapter'"),
        (["--set", "reasoner_adapter=lost"], "dualrag", 1, "has no adapter lost"),
    ],
)
def test_a_wrong_adapter_is_said_before_anyone_is_asked(ask, server, more, strategy, status, said):
    done = ask(*more, strategy=strategy)
    assert done.returncode == status
    assert said in done.stderr
    assert done.stdout == ""
    assert not asked(server)
