"""What events tell of an answer, and what counts for a row that lacks a metric of the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import pytest

from colligate.core.events import Event
from colligate.lab.bench.metrics.evidence import CUTS, evidence_measures
from colligate.lab.bench.outcome import Outcome, Piece, Row, read_events
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


@dataclass(frozen=True)
class Told(Event):
    """An event of a method of one's own."""

    rounds: Any = None
    round: Any = None
    signals: Any = None

    def line(self) -> str:
        return "told"


def test_rounds_and_attention_are_those_that_a_method_reports() -> None:
    weighed = Told(signals={"attention": (0.5, 0.25)})
    lost = Told(signals={"attention": (math.nan, 0.5)})
    events = [Told(signals="none"), lost, Told(round=1), weighed, Told(round=2)]
    broken = read_events(events)
    assert (broken["rounds"], broken["attention"]) == (2, (0.5, 0.25))
    assert read_events([*events, Told(rounds=1)])["rounds"] == 1
    assert "attention" not in read_events([])


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


def test_a_ratio_is_of_two_means_over_the_questions_that_have_both() -> None:
    scored = [(80.0, 0.1), (40.0, 0.3), (0.0, 0.2)]
    rows = [
        row(str(at), CAME_THROUGH, {"loong_spd": score, "usd": usd})
        for at, (score, usd) in enumerate(scored)
    ]
    rows.append(row("3", CAME_THROUGH, {"loong_spd": 100.0}))  # its price is not known

    found = collect_values(rows, "loong_spd/usd")
    # 40 points for .2 dollars; 60 points more than this costs, 20 and 40 fewer, each for .2 dollars
    assert found == pytest.approx({"0": 500.0, "1": 100.0, "2": 0.0})
    assert fmean(found.values()) == pytest.approx(200)
    free = [row("1", CAME_THROUGH, {"loong_spd": 80.0, "usd": 0.0})]
    assert collect_values(free, "loong_spd/usd") == {}
    assert collect_values(rows, "loong_spd/calls") == {}
