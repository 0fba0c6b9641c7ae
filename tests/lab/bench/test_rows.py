"""Rows on disk are read as they were written, but for what was only retrieved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from colligate.lab.bench.outcome import Outcome, Piece, Row, read_rows
from support.bench import write_rows


def row(question: str = "q1", text: str = "It is 41.") -> Row:
    piece = Piece("d1", 3, 9, "metres", "Tower", ((0, 2),))
    return Row(
        "towers",
        question,
        "direct",
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


def test_a_row_is_read_as_it_was_written_but_for_what_was_only_retrieved(tmp_path: Path) -> None:
    write_rows(tmp_path, [row()])

    bare = replace(row().outcome.retrieved[0], text="")
    expected = replace(row(), outcome=replace(row().outcome, retrieved=(bare,)))
    assert read_rows(tmp_path) == [expected] == [row().bare()]
    assert (str(expected.key), expected.error) == ("towers q1: direct", "")
