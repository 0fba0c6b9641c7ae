"""`colligate bench compare`, `suites` and `report` as commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Running = Callable[..., list[str | Path]]


@pytest.fixture
def out(bench: Any, tmp_path: Path) -> Path:
    """A run of all towers by two strategies, of which one is never right."""
    done = bench()
    assert done.returncode == 0, done.stderr
    return tmp_path / "out"


def test_two_strategies_of_a_run_are_compared_over_their_questions(
    colligate: Any, out: Path
) -> None:
    done = colligate.here("bench", "compare", out)

    compared = done.stdout.splitlines()[1].split()
    assert compared[2:6] == ["full-context", "nothing", "1", "0"]
    assert compared[6:10] == ["+1", "+1", "to", "+1"]
    assert compared[10:] == [f"{2 / 2**8:.4f}", "**", "8"]

    table = colligate.here(
        *("bench", "compare", out, "--strategies", "nothing,full-context", "--metric", "calls")
    )
    assert "+0 to +0" in table.stdout
    assert "1.0000" in table.stdout


def test_two_runs_are_compared_over_common_questions_and_the_missing_are_said(
    bench: Any, colligate: Any, out: Path, tmp_path: Path
) -> None:
    bench("--limit", "3", "--strategies", "full-context", out=tmp_path / "less")

    done = colligate.here("bench", "compare", out, tmp_path / "less")

    assert done.returncode == 0
    assert "out: full-context" in done.stdout
    assert "less: full-context lacks 5 questions of the other side" in done.stderr


def test_a_report_is_written_of_a_run(colligate: Any, out: Path) -> None:
    done = colligate.here("bench", "report", out)

    assert done.returncode == 0, done.stderr
    assert "Towers" in Path(done.stdout.strip()).read_text("utf-8")


def test_the_suites_are_listed(colligate: Any) -> None:
    listed = colligate.here("bench", "suites").stdout
    assert {"duquad-table1", "rdr2-ablation"} <= {line.split()[0] for line in listed.splitlines()}
    assert "DuQUAD, Table 1" in listed


def test_a_data_set_is_converted_with_its_documents(colligate: Any, tmp_path: Path) -> None:
    record = {"_id": "1", "question": "Who keeps the keys?", "answer": "A", "context": "The mayor."}
    choices = {f"choice_{letter}": f"Person {letter}" for letter in "ABCD"}
    (tmp_path / "data.json").write_text(json.dumps([{**record, **choices}]))
    plain, corpus = tmp_path / "plain.jsonl", tmp_path / "corpus.jsonl"

    done = colligate.here(
        *("bench", "convert", tmp_path / "data.json", "--out", plain, "--corpus", corpus)
    )
    assert done.returncode == 0, done.stderr
    assert "1 question;" in done.stderr
    assert "1 document;" in done.stderr
    assert json.loads(plain.read_text())["answers"] == ["(A) Person A", "Person A"]

    packed = tmp_path / "corpus.jsonl.gz"
    done = colligate.here("bench", "convert", corpus, "--format", "passages", "--out", packed)
    assert "1 passage;" in done.stderr
    assert packed.is_file()
