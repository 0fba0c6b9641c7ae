"""Costs, refusals and failures."""

from __future__ import annotations

import pytest

from colligate.lab.bench.metrics.every_answer import abstention_measures, cost_measures
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question
from colligate.models import Price, Usage
from colligate.models.metering import Meter, Prices


def test_costs_are_those_of_the_meter() -> None:
    meter = Meter(Prices([("dear", Price(input=2, output=10))]))
    meter.chat("reader", "dear", Usage(1000, 100), seconds=1)
    meter.chat("worker", "dear", Usage(500, 10), seconds=1)
    meter.scoring("scorer", "dear", passes=7, seconds=1)
    meter.retrieval()
    found = cost_measures(Question("q", "?"), Outcome(usage=meter.report().to_json(), seconds=2.5))
    assert (found["calls"], found["tokens"], found["searches"]) == (2, 1610, 1)
    assert (found["scoring_passes"], found["seconds"]) == (7, 2.5)
    assert found["usd"] == pytest.approx(0.0041)
    assert (found["output_tokens_reader"], found["calls_worker"]) == (100, 1)


def test_what_was_spent_on_documents_alone_is_apart() -> None:
    meter = Meter(Prices([("dear", Price(input=2, output=10))]))
    with meter.offline():
        meter.chat("worker", "dear", Usage(19_000, 500), seconds=1)
    meter.chat("reader", "dear", Usage(2000, 100), seconds=1)
    usage = meter.report(seconds=4).to_json()
    found = cost_measures(Question("q", "?"), Outcome(usage=usage, seconds=4.0))
    assert (found["offline_calls"], found["online_calls"], found["calls"]) == (1, 1, 2)
    assert (found["offline_tokens"], found["online_tokens"]) == (19_500, 2100)
    assert found["offline_seconds"] + found["online_seconds"] == found["seconds"] == 4
    assert found["offline_usd"] == pytest.approx(0.043)
    assert found["online_usd"] == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("reported", "searches", "rounds", "of_dualrag"),
    [(2, 10, 2, 2), (0, 0, 0, 1), (None, 3, 3, 3), (None, 0, 0, 1)],
)
def test_rounds_are_what_the_strategy_reports_and_searches_without(
    reported: int | None, searches: int, rounds: float, of_dualrag: float
) -> None:
    outcome = Outcome(usage={"retrieval_rounds": searches}, rounds=reported)
    found = cost_measures(Question("q", "?"), outcome)
    assert (found["searches"], found["rounds"]) == (searches, rounds)
    assert found["rounds_dual"] == of_dualrag, "the paper counts at least one"


@pytest.mark.parametrize(
    ("answerable", "outcome", "expected"),
    [
        (True, Outcome("x", found=True), {"wrong_refusal": 0, "failed": 0}),
        (True, Outcome(), {"wrong_refusal": 1, "failed": 0}),
        (True, Outcome(error="broke"), {"wrong_refusal": 0, "failed": 1}),
        (False, Outcome("x", found=True), {"right_refusal": 0, "failed": 0}),
        (False, Outcome(), {"right_refusal": 1, "failed": 0}),
        (False, Outcome(error="broke"), {"right_refusal": 0, "failed": 1}),
    ],
)
def test_refusals_are_right_or_wrong_and_what_broke_is_neither(
    answerable: bool, outcome: Outcome, expected: dict[str, float]
) -> None:
    answers = ("Ann",) if answerable else ()
    question = Question("q", "who?", answers, answerable=answerable)
    assert abstention_measures(question, outcome) == expected


def test_without_any_gold_nobody_knows_whether_a_refusal_is_wrong() -> None:
    assert abstention_measures(Question("q", "who?"), Outcome()) == {"failed": 0}
    assert "wrong_refusal" in abstention_measures(Question("q", "who?", gold=("g",)), Outcome())
