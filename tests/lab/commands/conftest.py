"""A small data set, a suite over it, and a reader that knows when each tower was built."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.cli import *  # noqa: F403
from support.models import NOT_FOUND, statement_reply
from support.prompts import passages_in

TOWERS = ("Ard", "Brack", "Corrin", "Dunmore", "Eask", "Fanad", "Galley", "Hook")
SUITE = """
title = "Towers"
[[datasets]]
name = "towers"
file = "towers.jsonl"
metrics = ["short", "evidence", "cost"]
[[strategies]]
name = "full-context"
label = "All of it"
[[strategies]]
name = "nothing"
strategy = "direct"
[[strategies]]
name = "best-one"
strategy = "retrieve-read"
set = ["k=1"]
default = false
[[columns]]
dataset = "towers"
metric = "containment"
label = "Acc"
scale = 100
"""
_ASKED = re.compile(r"When was the tower of (\w+) built")


def built(tower: str) -> int:
    return 1800 + 7 * TOWERS.index(tower)


def sentence(tower: str) -> str:
    return f"The tower of {tower} was built in {built(tower)} by its fishermen."


def record(tower: str) -> dict[str, Any]:
    at = TOWERS.index(tower)
    others = [TOWERS[(at + step) % len(TOWERS)] for step in (1, 2)]
    documents = [
        {"id": f"doc-{name}", "title": name, "text": f"{sentence(name)} It burns oil."}
        for name in (others[0], tower, others[1])
    ]
    return {
        "id": f"q-{tower}",
        "question": f"When was the tower of {tower} built?",
        "answers": [str(built(tower))],
        "documents": documents,
        "gold_document_ids": [f"doc-{tower}"],
        "meta": {"gold_position": 1, "coast": "north" if at % 2 else "south"},
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    lines = (json.dumps(record(tower)) + "\n" for tower in TOWERS)
    (folder / "towers.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "towers.toml").write_text(SUITE, encoding="utf-8")
    return folder


def asked_about(body: dict[str, Any]) -> str:
    """The tower that a request asks about."""
    found = _ASKED.search(body["messages"][-1]["content"])
    assert found is not None
    return found.group(1)


def answer(body: dict[str, Any]) -> str:
    """Says when the tower was built if a passage shows it; without passages, that it cannot."""
    if "passage" not in body["messages"][-1]["content"]:
        return "I have never been there."
    wanted = sentence(asked_about(body))
    for number, text in passages_in(body["messages"][-1]["content"]).items():
        if wanted in text:
            said = json.loads(statement_reply(wanted, wanted, str(built(asked_about(body)))))
            said["statements"][0]["passage"] = number
            return json.dumps(said)
    return NOT_FOUND


@pytest.fixture
def keeper(openai_server: Any) -> Any:
    """The server of a model that answers from what it is shown."""
    openai_server.answer = answer
    return openai_server


@pytest.fixture
def running(data: Path, keeper: Any) -> Callable[..., list[str | Path]]:
    """`running(out, ...)` are the arguments that run the suite into a folder."""

    def arguments(out: Path, *more: str | Path) -> list[str | Path]:
        model = f"openai:keeper@{keeper.url}"
        return [
            *("bench", "run", data / "towers.toml", "--data", data, "--out", out),
            *("--model", model, "--embedder", "static", *more),
        ]

    return arguments


@pytest.fixture
def bench(colligate: Any, running: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """`bench(...)` runs the suite into the folder `out`."""

    def run(*more: str | Path, out: Path = tmp_path / "out") -> Any:
        return colligate.here(*running(out, *more))

    return run


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """The folder of the run."""
    return tmp_path / "out"
