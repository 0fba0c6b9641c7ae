"""`colligate bench run`: rows, resuming, limits, failures."""

from __future__ import annotations

import errno
import gzip
import json
import os
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from support.bench import lasting, rows_of


def test_every_strategy_answers_every_question_in_a_row_of_its_own(bench: Any, out: Path) -> None:
    done = bench()

    assert done.returncode == 0, done.stderr
    rows = rows_of(out)
    assert Counter(row["strategy"] for row in rows) == {"full-context": 8, "nothing": 8}
    row = next(row for row in rows if row["question"] == "q-Eask")
    assert row["strategy"] == "full-context"
    assert row["answers"] == ["1828"]
    assert row["gold_at"] == 1
    assert row["outcome"]["short"] == "1828"
    assert row["outcome"]["citations"][0]["document"] == "doc-Eask"
    assert row["metrics"]["containment"] == 1.0
    assert row["metrics"]["gold_all_evidence"] == 1.0
    assert row["metrics"]["calls"] == 1.0
    assert ["All", "of", "it", "100", "8"] in [line.split() for line in done.stdout.splitlines()]
    wrong = next(row for row in rows if row["strategy"] == "nothing")
    assert wrong["outcome"]["text"] == "I have never been there."
    assert wrong["metrics"]["containment"] == 0.0


def test_a_data_set_without_columns_of_its_own_is_printed_with_the_main_metrics(
    bench: Any, data: Path
) -> None:
    suite = data / "towers.toml"
    group = '[[groups]]\nname = "all"\ndatasets = ["towers"]\n'
    text = suite.read_text("utf-8").replace(
        '[[columns]]\ndataset = "towers"', f'{group}[[columns]]\ndataset = "all"'
    )
    suite.write_text(text, "utf-8")
    assert bench("--limit", "1").stdout.split()[:2] == ["towers", "containment"]


def test_a_full_disk_stops_the_run_which_goes_on_when_there_is_room(
    bench: Any, monkeypatch: pytest.MonkeyPatch, out: Path
) -> None:
    def full(file: int) -> None:
        if len(list((out).glob("traces/*/*/*"))) > 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("colligate.lab.jobs.files.os.fsync", full)
        done = bench()
    assert done.returncode == 1
    assert "stopped; what is finished is in " in done.stderr
    assert "the same command resumes" in done.stderr
    assert "free some disk space" in done.stderr

    assert bench().returncode == 0
    keys = [(row["question"], row["strategy"]) for row in rows_of(out)]
    assert len(keys) == len(set(keys)) == 16


def test_a_failed_answer_is_a_row_that_counts_as_wrong_and_is_retried_on_demand(
    bench: Any, keeper: Any, out: Path
) -> None:
    keeper.too_long("openai")
    done = bench("--limit", "1")

    assert done.returncode == 0
    assert "1 answer failed, counted as wrong" in done.stderr
    failed, other = rows_of(out)
    assert failed["outcome"]["error"].startswith("ContextTooSmall: ")
    assert failed["metrics"]["containment"] == 0.0
    assert other["outcome"]["error"] == ""

    bench("--limit", "1")
    assert len(rows_of(out)) == 2  # not of itself
    done = bench("--limit", "1", "--retry-failed")
    again = rows_of(out)[-1]
    assert (again["strategy"], again["attempt"]) == (failed["strategy"], 2)
    assert again["outcome"]["error"] == ""
    assert done.returncode == 0


def test_the_budget_of_the_whole_run_leaves_no_row_that_felt_it(
    bench: Any, tmp_path: Path, out: Path
) -> None:
    whole = tmp_path / "whole"
    bench("--limit", "3", out=whole)
    done = bench("--limit", "3", "--max-tokens-total", "4450")

    assert done.returncode == 1
    assert "the token budget is spent" in done.stderr
    rows = rows_of(out)
    assert 0 < len(rows) < 6
    assert all(row["outcome"]["error"] == "" for row in rows)
    bench("--limit", "3")
    assert lasting(out) == lasting(whole)


def test_concurrent_answers_are_the_same_rows(bench: Any, keeper: Any, tmp_path: Path) -> None:
    bench(out=tmp_path / "one")
    alone, four = keeper.answer, threading.Barrier(4)

    def together(body: dict[str, Any]) -> Any:
        four.wait(timeout=60)
        return alone(body)

    keeper.answer = together
    bench("--concurrency", "4", out=tmp_path / "four")

    assert lasting(tmp_path / "four") == lasting(tmp_path / "one")
    assert keeper.in_flight_most == 4


def test_each_answer_has_its_trace(bench: Any, out: Path) -> None:
    bench("--limit", "1")
    row = rows_of(out)[0]

    with gzip.open(out / row["trace"], "rt", encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines]
    assert next(event["event"] for event in events if event["event"] != "opened") == "asking"
    assert events[-1]["event"] == "answered"


def test_the_run_is_on_record(bench: Any, keeper: Any, out: Path) -> None:
    keeper.models = ["keeper"]
    keeper.window = 4096
    bench("--limit", "1", "--strategies", "full-context,best-one")

    run = json.loads((out / "run.json").read_text("utf-8"))
    assert run["models"]["reader"]["name"] == f"openai:keeper@{keeper.url}"
    assert len(run["models"]["embedder"]["digest"]) == 64
    assert len(run["data"]["towers.jsonl"]) == 64
    assert {"readers/quoting.py", "strategies/full_context.py"} <= set(run["prompts"])
    assert run["models"]["check of quoting"]["name"] == "model"
    assert run["versions"]["python"]
    assert run["suite_text"].startswith('\ntitle = "Towers"')
    [session] = run["sessions"]
    assert session["ended"] >= session["began"]
    assert session["hardware"]["cores"] >= 1
    assert session["arguments"]["limit"] == 1


def test_metrics_that_are_missing_are_said_and_taken_by_the_same_command(
    bench: Any, keeper: Any, data: Path, out: Path
) -> None:
    suite = (data / "towers.toml").read_text("utf-8")
    (data / "towers.toml").write_text(suite.replace('"cost"]', '"cost", "judge_dual"]'))
    alone = keeper.answer

    says: list[Any] = []

    def judging(body: dict[str, Any]) -> Any:
        return (says[-1] if says else failure) if body["model"] == "judge" else alone(body)

    keeper.fail(403, "not today")
    failure = keeper.script.pop()
    keeper.answer = judging
    more = ("--limit", "1", "--strategies", "full-context", "--judge", f"openai:judge@{keeper.url}")
    first = bench(*more)
    assert "metrics are missing in 1 row, such as judge_dual (" in first.stderr
    assert "judge_dual_max" not in rows_of(out)[0]["metrics"]

    says.append("Yes.")
    second = bench(*more)
    assert "metrics are missing" not in second.stderr
    row = rows_of(out)[-1]
    assert (row["metrics"]["judge_dual_max"], row["metrics"]["containment"]) == (1.0, 1.0)
