"""`colligate refine`: what a question needs of some files, and nothing else, on standard output."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

QUESTION = "When was the tower built?"


def refiner(body: dict[str, Any]) -> str:
    """A model that wants little, and that of the section Building."""
    system, last = body["messages"][0]["content"], body["messages"][-1]["content"]
    if "Local" in system:
        return "[Local]"
    return "['Building']" if "Building" in last else "[]"


@pytest.fixture
def long(folder: Path) -> Path:
    """The two small documents, the tower's with much more text in it."""
    more = "\n\n".join(f"## Keeper {n}\n\nKeeper {n} {'kept the lamp ' * 40}." for n in range(30))
    tower = folder / "tower.md"
    tower.write_text(f"{tower.read_text(encoding='utf-8')}\n{more}\n", encoding="utf-8")
    return folder


@pytest.fixture
def refine(openai_server: Any) -> Callable[..., list[Any]]:
    """The arguments that refine paths for QUESTION."""
    openai_server.answer = refiner
    model = f"openai:worker@{openai_server.url}"
    return lambda *more: ["refine", QUESTION, "--model", model, "--embedder", "static", *more]


def test_the_text_is_on_standard_output_and_what_it_took_on_the_other(colligate, refine, long):
    done = colligate.here(*refine(long, "--budget", 200))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "# The lighthouse"
    assert "## Building" in lines
    assert "The tower was built in 1871 by Ada Mercer. It is 41 metres high." in lines
    assert len(done.stdout) < 1500
    took = done.stderr.splitlines()[-1]
    found = re.match(r"2 documents, ([\d,]+) tokens -> ([\d,]+) of 200; openai:worker@", took)
    assert found, took
    whole, kept = (int(number.replace(",", "")) for number in found.groups())
    assert kept <= 200 < 3000 < whole


def test_as_json_its_spans_are_slices_of_the_documents(colligate, refine, long, tmp_path):
    trace = tmp_path / "trace.jsonl"
    many, one = ("--set", "budget=3000"), ("--set", "documents=1")
    arguments = refine(long, *many, *one, "--budget", 300, "--trace", trace)
    done = colligate.here(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["question"], said["budget"], len(said["documents"])) == (QUESTION, 300, 1)
    assert said["tokens"] <= 300
    assert said["usage"]["calls"] >= 2
    for passage in said["passages"]:
        text = colligate.here("library", "show", passage["document"], "--text").stdout
        assert text[passage["start"] : passage["end"]].strip() in said["text"]
    events = [json.loads(line)["event"] for line in trace.read_text("utf-8").splitlines()]
    assert {"structured", "weighed", "selected"} <= set(events)


def test_nothing_to_keep_is_status_3(colligate, refine, tmp_path):
    (tmp_path / "none.md").write_text("# Title\n\n## Heading alone\n", encoding="utf-8")
    done = colligate.here(*refine(tmp_path / "none.md"))
    assert (done.returncode, done.stdout) == (3, ""), done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--budget", "0"], "--budget"),
        (["--set", "budgit=3"], "did you mean budget?"),
        (["--set", "structuring=best"], "expected 'auto', 'headings', 'model' or 'chunks'"),
        (["none.md"], "none.md"),
        ([], "is empty"),
    ],
)
def test_wrong_usage_is_status_2(colligate, refine, arguments, says):
    done = colligate.here(*refine(*arguments))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr.splitlines()[-1]
