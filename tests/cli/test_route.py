"""`colligate tree FILE --route QUESTION`: where a question leads in a file."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUESTION = "When was the tower built?"
LIGHTHOUSE = """# The lighthouse

It stands on a rock.

## Building

The tower was built in 1871 by Ada Mercer.

It is 41 metres high.

## Light

The lamp burns rapeseed oil.

## Keepers

Two keepers live in the tower.
"""
_MOVES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def router(*wanted: str) -> Callable[[dict[str, Any]], str]:
    """A router that accepts paragraphs and opens collapsed headings with any of these words."""

    def reply(body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        shown = re.findall(r"^\t*(-?\d+): (.*)$", prompt.split("<document>")[1], re.MULTILINE)
        tags = {True: "EXPAND", False: "ANSWER"}
        actions = [
            f"[{tags[text.startswith('=')]}] {node}: {text[:20]}"
            for node, text in shown[1:]  # not the title
            if any(word in text for word in wanted)
        ]
        return "\n".join(actions) or "Cannot answer"

    return reply


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "lighthouse.md"
    made.write_text(LIGHTHOUSE, encoding="utf-8")
    return made


@pytest.fixture
def route(openai_server: Any) -> Callable[..., list[Any]]:
    """The arguments that route QUESTION through a file, one passage found, with more behind."""
    openai_server.answer = router("built in 1871", "Light", "lamp")

    def arguments(file: Path, *more: Any) -> list[Any]:
        model = f"openai:router@{openai_server.url}"
        return ["tree", file, "--route", QUESTION, "--model", model, "--embedder", "static",
                "--set", "k=1", *more]  # fmt: skip

    return arguments


def test_the_routed_nodes_are_lit(colligate: Any, route: Any, file: Path) -> None:
    done = colligate.here(*route(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        "2 subtrees shown, 0 refused",
        "├── Introduction",
        "├── Building",
        "│   ├── ● The tower was built in 1871 by Ada Mercer.  round 0, retrieved",
        "│   └── ○ It is 41 metres high.",
        "├── ▾ Light  expanded, round 1",
        "│   └── ● The lamp burns rapeseed oil.  round 1",
        "└── Keepers",
        "",
        "● accepted   ○ retrieved, not accepted   ▾ expanded   "
        "other headings were shown to the router and not chosen; round 0 is the search",
        "2 blocks accepted in 1 document; 2 subtrees shown, 0 refused; 2 calls",
    ]
    assert "openai:router@" in done.stderr.splitlines()[-1]


def test_as_json_its_spans_are_slices_of_the_document(
    colligate: Any, route: Any, file: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.jsonl"
    done = colligate.here(*route(file, "--json", "--trace", trace))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["question"], said["found"], said["usage"]["calls"]) == (QUESTION, True, 2)
    [document] = said["documents"]
    text = colligate.here("library", "show", document["document"], "--text").stdout
    answers = {text[a["start"] : a["end"]]: a["round"] for a in document["answers"]}
    assert answers == {
        "The tower was built in 1871 by Ada Mercer.": 0,
        "The lamp burns rapeseed oil.": 1,
    }
    events = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    routed = [event for event in events if event["event"] == "routed"]
    assert [event["round"] for event in routed] == [0, 1]
    assert "==Keepers==" in routed[0]["shown"]


def test_nothing_accepted_is_status_3(
    colligate: Any, route: Any, openai_server: Any, file: Path
) -> None:
    arguments = route(file)
    openai_server.answer = "Cannot answer"
    done = colligate.here(*arguments)
    assert done.returncode == 3
    assert "0 blocks accepted in 1 document; 1 subtree shown, 1 refused; 1 call" in done.stdout
    assert "○ The tower was built in 1871" in done.stdout


def test_a_heading_cannot_drive_the_terminal(colligate: Any, route: Any, file: Path) -> None:
    file.write_text(
        "# Evil \x1b[2J[red]title\n\n## Light \x1b]0;owned\x07 [bold]\n\nA lamp \x1b[2J \u202e.\n\n"
        "## Building\n\nThe tower was built in 1871 \x9b31m \x1b[2J[/red].\n",
        encoding="utf-8",
    )
    status, screen = colligate.in_terminal(*route(file))
    assert status == 0, screen
    for attack in ("\x1b[2J", "\x1b]", "\x07", "\x9b", "\u202e"):
        assert attack not in screen.split("\x1b[?25h")[-1]
    assert "[bold]" in screen
    assert "␛[2J[red]title" in screen


def test_options_of_the_route_alone_are_wrong_usage(colligate: Any, file: Path) -> None:
    for option in (["--set", "k=3"], ["--model", "bundled"], ["--timeout", "3"], ["--cache"]):
        done = colligate.here("tree", file, *option)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"{option[0]} has no effect here" in done.stderr
    assert colligate.here("tree", file, "--route", " ").returncode == 2
    assert colligate.here("tree", file.parent / "none.md", "--route", "Who?").returncode == 2
