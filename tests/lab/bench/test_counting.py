"""What counts for a row that lacks a metric which the others of its strategy have."""

from __future__ import annotations

from collections.abc import Mapping

from colligate.lab.bench.metrics.evidence import CUTS, evidence_measures
from colligate.lab.bench.outcome import Outcome, Piece, Row
from colligate.lab.bench.question import Question
from colligate.lab.bench.tables import collect_values

QUESTION = Question("q", "?", ("y",), gold=("g",))
CAME_THROUGH = Outcome(
    text="y", found=True, evidence=(Piece("g", 0, 1, "y"),), stages={"kept": ("g",)}
)
BROKE = Outcome(error="ModelError: no")
SUITE = """
title = "S"
datasets = [{ name = "d", file = "d" }]
strategies = [{ name = "a" }, { name = "b" }]
"""


def row(
    question: str, outcome: Outcome, metrics: Mapping[str, float] | None = None, strategy: str = "a"
) -> Row:
    measures = metrics if metrics is not None else evidence_measures(QUESTION, outcome)
    return Row("d", question, strategy, "?", ("y",), outcome, measures)


def test_what_broke_before_a_stage_kept_no_gold_in_it() -> None:
    rows = [row("1", CAME_THROUGH), row("2", BROKE)]

    assert "gold_any_kept" not in rows[1].metrics
    assert collect_values(rows, "gold_any_kept") == {"1": 1.0, "2": 0.0}
    assert collect_values(rows[1:], "gold_any_kept") == {}  # nobody knows of such a stage


def test_what_ended_without_evidence_kept_none_and_what_read_on_without_the_stage_is_left_out() -> (
    None
):
    refused = Outcome()
    without_stage = Outcome(text="y", found=True, evidence=(Piece("g", 0, 1, "y"),))
    rows = [row("1", CAME_THROUGH), row("2", refused), row("3", without_stage)]

    assert collect_values(rows, "gold_share_kept") == {"1": 1.0, "2": 0.0}


def test_a_role_that_was_not_asked_took_nothing() -> None:
    rows = [
        row("1", CAME_THROUGH, {"calls": 3.0, "calls_worker": 2.0}),
        row("2", CAME_THROUGH, {"calls": 1.0}),
        row("3", CAME_THROUGH, {"em": 1.0}),  # what it took was not measured
    ]

    assert collect_values(rows, "calls_worker") == {"1": 2.0, "2": 0.0}


def test_what_broke_is_a_search_in_vain_only_of_a_strategy_that_searches() -> None:
    broken = row("2", BROKE, {f"recall_at_{k}": 0.0 for k in CUTS} | {"gold_any_retrieved": 0.0})
    reads, searches = row("1", CAME_THROUGH, {}), row("1", CAME_THROUGH, {"recall_at_5": 1.0})

    assert collect_values([reads, broken], "recall_at_5") == {}
    assert collect_values([reads, broken], "gold_any_retrieved") == {}
    assert collect_values([searches, broken], "recall_at_5") == {"1": 1.0, "2": 0.0}
    assert collect_values([broken], "recall_at_5") == {"2": 0.0}
