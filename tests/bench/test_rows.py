"""Rows on disk: what was put down is read again, whatever was torn off."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.bench.outcome import Outcome, Piece
from colligate.bench.rows import FILE, Key, Row, RowFile, read_rows
from colligate.errors import FaultyRecord, MissingPath


def row(question: str = "q1", strategy: str = "direct", text: str = "It is 41.") -> Row:
    piece = Piece("d1", 3, 9, "metres", "Tower", ((0, 2),))
    return Row(
        "towers",
        question,
        strategy,
        question_text="How high?",
        answers=("41", "41 m"),
        outcome=Outcome(text, "41", True, (piece,), (piece,), (piece,), {"kept": ("d1",)}),
        metrics={"em": 1.0},
        gold_at=4,
        unmeasured={"judge_dual": "interrupted"},
        trace="traces/x.jsonl.gz",
        began="2026-11-21T10:00:00+00:00",
        attempt=2,
    )


def stored(rows: list[Row], folder: Path) -> None:
    with RowFile(folder) as file:
        for each in rows:
            file.add(each)


def test_a_row_is_read_as_it_was_put_down_but_for_what_was_only_retrieved(tmp_path: Path) -> None:
    stored([row()], tmp_path)

    bare = replace(row().outcome.retrieved[0], text="")
    assert read_rows(tmp_path) == [
        replace(row(), outcome=replace(row().outcome, retrieved=(bare,)))
    ]


def test_a_long_run_does_not_hold_the_texts_of_what_it_retrieved(tmp_path: Path) -> None:
    with RowFile(tmp_path) as file:
        file.add(row())
        assert list(file.rows.values()) == read_rows(tmp_path)


def test_of_rows_with_one_key_the_last_counts_in_the_place_of_the_first(tmp_path: Path) -> None:
    stored([row("q1"), row("q2"), row("q1", text="Later.")], tmp_path)

    read = read_rows(tmp_path)
    assert [each.key for each in read] == [
        Key("towers", "q1", "direct"),
        Key("towers", "q2", "direct"),
    ]
    assert read[0].outcome.text == "Later."


def test_a_line_is_on_the_disk_before_add_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        real(handle)
        synced.append((tmp_path / FILE).stat().st_size)

    monkeypatch.setattr(os, "fsync", fsync)
    with RowFile(tmp_path) as file:
        file.add(row())
        assert synced[-1] == len((tmp_path / FILE).read_bytes()) > 0


@given(cut=st.integers(min_value=1, max_value=10_000))
def test_whatever_is_torn_off_the_end_whole_rows_stay_and_more_can_follow(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    folder = tmp_path_factory.mktemp("run")
    stored([row(f"q{n}", text="¬é𝄞 " * n) for n in range(4)], folder)
    whole = (folder / FILE).read_bytes()
    left = whole[: max(0, len(whole) - cut)]
    (folder / FILE).write_bytes(left)
    # The last line counts where only its line's end is missing.
    expected = left.count(b"\n") + (cut == 1)

    assert [each.question for each in read_rows(folder)] == [f"q{n}" for n in range(expected)]
    with RowFile(folder) as file:
        assert len(file.rows) == expected
        file.add(row("new"))
    questions = [each.question for each in read_rows(folder)]
    assert questions == [*(f"q{n}" for n in range(expected)), "new"]
    assert (folder / FILE).read_bytes().endswith(b"\n")


def test_a_damaged_line_among_others_is_named_and_nothing_is_cut(tmp_path: Path) -> None:
    stored([row("q1"), row("q2")], tmp_path)
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    (tmp_path / FILE).write_bytes(lines[0] + b'{"dataset": "towers"}\n' + lines[1])
    before = (tmp_path / FILE).read_bytes()

    with pytest.raises(FaultyRecord, match=r"line 2 of .*rows.jsonl is no row: KeyError"):
        read_rows(tmp_path)
    with pytest.raises(FaultyRecord, match="line 2"):
        RowFile(tmp_path)
    assert (tmp_path / FILE).read_bytes() == before


def test_text_that_no_encoding_can_write_does_not_lose_the_row(tmp_path: Path) -> None:
    stored([row(text="half \ud83d of it, and a \u2028 line")], tmp_path)

    [read] = read_rows(tmp_path)
    assert read.outcome.text == "half ? of it, and a \u2028 line"


def test_a_number_that_is_none_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with RowFile(tmp_path) as file:
        with pytest.raises(ValueError, match="not JSON compliant"):
            file.add(replace(row(), metrics={"em": float("nan")}))
        assert not file.rows
    assert read_rows(tmp_path) == []


def test_a_folder_without_rows_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(MissingPath, match=r"is no run: it has no rows.jsonl"):
        read_rows(tmp_path)


def test_rows_are_lines_of_plain_json(tmp_path: Path) -> None:
    stored([row()], tmp_path)

    line = json.loads((tmp_path / FILE).read_text("utf-8"))
    assert {"dataset", "question", "strategy", "gold_at", "question_text", "answers"} <= set(line)
    assert line["outcome"]["citations"][0]["answer_spans"] == [[0, 2]]
