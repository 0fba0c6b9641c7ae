"""Data sets and metrics that another package registers, named by a suite like any other."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colligate.errors import FaultyRecord, UsageError
from colligate.lab.bench.datasets import read_questions
from colligate.lab.bench.datasets.formats import all_formats, find_format
from colligate.lab.bench.metrics import Backends
from colligate.lab.bench.metrics.catalogue import (
    all_groups,
    higher_is_better,
    measure,
    require_groups,
)
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.question import Question
from colligate.lab.bench.run import BenchRequest, run_suite
from colligate.lab.bench.suites import parse_suite
from colligate.models import Role
from colligate.plugins import plugins
from colligate.testing import ScriptedModel

Install = Callable[..., None]

TOY = """
from colligate.lab.bench.datasets import RecordModel, has_fields, make_format
from colligate.lab.bench.metrics import MetricGroup
from colligate.lab.bench.question import Question


class Riddle(RecordModel):
    riddle: str
    solution: str


def make_question(record):
    return Question("", record.riddle, (record.solution,), meta=record.rest)


RIDDLES = make_format("riddles", "riddles", Riddle, make_question, has_fields("riddle"))


def vowels(question, outcome):
    return {"vowels": float(sum(letter in "aeiou" for letter in outcome.text))}


VOWELS = MetricGroup("vowels", "vowels of the answer", compute=vowels, lower=("vowels",))
"""
SUITE = """
title = "Riddles"
datasets = [{ name = "r", file = "r.jsonl", format = "toy", metrics = ["short", "toy"] }]
strategies = [{ name = "direct" }]
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """`install(datasets="toy_plugin:RIDDLES")` registers it, as another package would."""
    caches = (plugins, all_formats, all_groups)

    def install(**entries: str) -> None:
        site = tmp_path / "site"
        info = site / "toy_plugin-1.0.dist-info"
        info.mkdir(parents=True)
        (site / "toy_plugin.py").write_text(TOY)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-plugin\nVersion: 1.0\n")
        lines = (f"[colligate.{kind}]\ntoy = {value}\n" for kind, value in entries.items())
        (info / "entry_points.txt").write_text("".join(lines))
        monkeypatch.syspath_prepend(site)
        for each in caches:
            each.cache_clear()

    yield install
    monkeypatch.undo()
    sys.modules.pop("toy_plugin", None)
    for each in caches:
        each.cache_clear()


def write_riddles(folder: Path, **changes: object) -> Path:
    record = {"riddle": "What has keys?", "solution": "a piano", "level": 1, **changes}
    file = folder / "r.jsonl"
    file.write_text(json.dumps(record) + "\n")
    return file


def test_a_registered_format_is_told_from_the_first_record(
    install: Install, tmp_path: Path
) -> None:
    install(datasets="toy_plugin:RIDDLES")
    file = write_riddles(tmp_path)
    assert find_format(file).name == find_format(file, "toy").name == "riddles"
    (question,) = read_questions(file)
    assert (question.text, question.answers) == ("What has keys?", ("a piano",))
    assert question.meta == {"level": 1}
    with pytest.raises(FaultyRecord, match=r"line 1 of .*field 'solution'"):
        list(read_questions(write_riddles(tmp_path, solution=None)))


async def test_a_registered_group_is_measured_like_any_other(install: Install) -> None:
    install(metrics="toy_plugin:VOWELS")
    require_groups(["toy"], Backends())
    found = await measure(["toy"], Question("q", "?", ("x",)), Outcome("a piano", found=True))
    assert found == {"vowels": 4.0}
    assert higher_is_better("vowels") is False
    assert list(all_groups())[-1] == "toy"


def test_a_suite_names_both_and_a_run_has_their_values(install: Install, tmp_path: Path) -> None:
    install(datasets="toy_plugin:RIDDLES", metrics="toy_plugin:VOWELS")
    write_riddles(tmp_path)
    names = ModelNames(models={Role.READER: ScriptedModel(lambda call: "a piano")})
    suite = parse_suite(SUITE, "riddles", "riddles.toml")
    request = BenchRequest(suite, tmp_path, tmp_path / "out", names)
    done = asyncio.run(run_suite(request, lambda event: None))
    (row,) = done.rows.values()
    assert row.question_text == "What has keys?"
    assert (row.metrics["vowels"], row.metrics["em"]) == (4.0, 1.0)


@pytest.mark.parametrize("kind", ["datasets", "metrics"])
def test_an_entry_point_of_another_kind_is_named(install: Install, kind: str) -> None:
    other = "RIDDLES" if kind == "metrics" else "VOWELS"
    install(**{kind: f"toy_plugin:{other}"})
    with pytest.raises(UsageError, match=f"cannot load .*'toy'.*{other}.*expected a"):
        all_groups() if kind == "metrics" else find_format(Path("x"), "toy")
