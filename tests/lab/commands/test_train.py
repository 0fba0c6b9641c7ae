"""`colligate train`: curate with a teacher behind a server, evaluate; how each ends."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.strategies.rdr2.router import REFUSAL

TOWERS = ("Ard", "Brack", "Corrin", "Dunmore", "Eask", "Fanad", "Galley", "Hook")
COMMANDS = ("curate", "fit", "evaluate")


def page(tower: str) -> str:
    built = 1800 + 7 * TOWERS.index(tower)
    return (
        f"# {tower}\n\n{tower} is a headland.\n\n## Tower of {tower}\n\n"
        f"The tower of {tower} was built in {built}.\n\n## Birds\n\nGulls breed at {tower}.\n"
    )


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A page and a question for each tower."""
    folder = tmp_path / "data"
    (folder / "pages").mkdir(parents=True)
    for tower in TOWERS:
        (folder / "pages" / f"{tower}.md").write_text(page(tower), encoding="utf-8")
    questions = [{"id": f"q-{t}", "question": f"When was the tower of {t} built?"} for t in TOWERS]
    lines = "".join(json.dumps(each) + "\n" for each in questions)
    (folder / "questions.jsonl").write_text(lines, encoding="utf-8")
    return folder


@pytest.fixture
def server(openai_server: Any) -> Any:
    """A teacher that knows the way, an adapter that learnt it, and a base that is lost."""

    def answer(body: dict[str, Any]) -> str:
        prompt = body["messages"][-1]["content"]
        tower = re.findall(r"the tower of (\w+) built", prompt)[0]
        built = re.findall(rf"^\t*(\d+): (The tower of {tower} was .*)$", prompt, re.MULTILINE)
        if "response_format" in body:
            return json.dumps({"quotes": [text for _, text in built], "headings": []})
        if body["model"] == "base" or not built:
            return REFUSAL
        return "\n".join(f"[ANSWER] {node}: {text[:20]}" for node, text in built)

    openai_server.answer = answer
    return openai_server


@pytest.fixture
def curating(data: Path, server: Any) -> Callable[..., list[str | Path]]:
    """`curating(out, ...)` are the arguments that have the teacher make samples."""

    def arguments(out: Path, *more: str | Path) -> list[str | Path]:
        return [
            *("train", "curate", "rdr2", "--questions", data / "questions.jsonl"),
            *("--corpus", data / "pages", "--teacher", f"openai:teacher@{server.url}"),
            *("--embedder", "static", "--set", "k=2", "--held-out", "0.5", "--out", out, *more),
        ]

    return arguments


def asked(server: Any) -> Counter[str]:
    return Counter(r["model"] for r in server.requests if r["path"] == "/chat/completions")


def test_samples_and_their_card_stand_in_the_folder(
    colligate: Any, curating: Any, server: Any, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    done = colligate.here(*curating(out))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(out / "README.md")
    samples = {
        split: [json.loads(line) for line in (out / f"{split}.jsonl").read_bytes().splitlines()]
        for split in ("train", "held_out")
    }
    every = [*samples["train"], *samples["held_out"]]
    assert min(map(len, samples.values())) > 2
    assert {each["messages"][-1]["role"] for each in every} == {"assistant"}
    assert "| router | all |" in (out / "README.md").read_text("utf-8")
    assert set(asked(server)) == {"teacher"}
    before = asked(server)
    assert colligate.here(*curating(out)).returncode == 0
    assert asked(server) == before
    card = json.loads((out / "card.json").read_bytes())
    assert card["complete"] is True
    assert card["sessions"][0]["arguments"]["parameters"] == ["k=2"]


def test_an_adapter_is_evaluated_on_what_was_held_out(
    colligate: Any, curating: Any, server: Any, tmp_path: Path
) -> None:
    out, found = tmp_path / "out", tmp_path / "found"
    assert colligate.here(*curating(out)).returncode == 0
    server.requests.clear()
    evaluating = [
        *("train", "evaluate", out, "--model", f"openai:base@{server.url}"),
        *("--adapter", "router", "--out", found),
    ]
    done = colligate.here(*evaluating)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:6] == ["task", "metric", "samples", "base", "adapted", "difference"]
    by_metric = {line.split()[1]: line.split() for line in lines[1:]}
    assert by_metric["ans_f1"][3:6] == ["0.000", "1.000", "+1.000"]
    assert by_metric["ref_acc"][3:6] == ["1.000", "1.000", "+0.000"]
    assert "lower is better" in next(line for line in lines if "col_rate" in line)
    held_out = len((out / "held_out.jsonl").read_text("utf-8").splitlines())
    assert asked(server) == {"base": held_out, "router": held_out}
    assert (found / "replies.jsonl").is_file()

    assert colligate.here(*evaluating).returncode == 0
    as_json = json.loads((found / "report.json").read_bytes())
    assert asked(server) == {"base": held_out, "router": held_out}  # nothing again
    assert as_json["models"]["router"] == f"openai:router@{server.url}"
    measure = next(m for m in as_json["measures"] if m["metric"] == "ans_f1")
    assert (measure["base"], measure["adapted"]) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("curate", "rdr3", "--teacher", "bundled"), "rdr3"),
        (("curate", "rdr2", "--questions", "none.jsonl"), "--teacher"),
        (("curate", "rdr2", "--teacher", "bundled", "--tasks", "scope"), "scope"),
        (("curate", "dualrag", "--teacher", "bundled"), "--questions"),
        (("curate", "rdr2", "--teacher", "bundled", "--judge", "bundled"), "--judge"),
        (("curate", "rdr2", "--teacher", "bundled"), "--questions"),
        (
            ("fit", "rdr2-ruoter", "--data", ".", "--base", "hf:x"),
            "there is no recipe",
        ),
        (("evaluate", ".", "--model", "bundled"), "it has no held_out.jsonl"),
    ],
)
def test_wrong_usage_is_one_line(
    colligate: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = colligate.here("train", *arguments, "--out", tmp_path / "out")
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert done.stdout == ""


def test_help_loads_nothing_heavy() -> None:
    asking = "".join(f"main(['train', {name!r}, '--help']);" for name in COMMANDS)
    heavy = ("torch", "transformers", "trl", "peft", "datasets", "numpy", "openai")
    code = (
        f"import sys; from colligate.cli import main; {asking}"
        f"print([name for name in {heavy} if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"
    assert "Have a teacher make training samples" in done.stdout
