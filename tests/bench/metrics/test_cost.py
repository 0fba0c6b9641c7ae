"""Costs, refusals and failures."""

from __future__ import annotations

import pytest

from colligate.bench.metrics.cost import abstention_measures, cost_measures
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question
from colligate.models import Price, Usage
from colligate.models.metering import Meter, Prices


def test_costs_are_those_of_the_meter() -> None:
    meter = Meter(Prices([("dear", Price(input=2, output=10))]))
    meter.chat("reader", "dear", Usage(1000, 100), seconds=1)
    meter.chat("worker", "dear", Usage(500, 10), seconds=1)
    meter.scoring("scorer", "dear", passes=7, seconds=1)
    meter.retrieval()
    found = cost_measures(Question("q", "?"), Outcome(usage=meter.report().to_json(), seconds=2.5))
    assert (found["calls"], found["tokens"], found["rounds"]) == (2, 1610, 1)
    assert (found["scoring_passes"], found["seconds"]) == (7, 2.5)
    assert found["usd"] == pytest.approx(0.0041)
    assert (found["output_tokens_reader"], found["calls_worker"]) == (100, 1)


def test_what_prepares_documents_has_its_own_cost() -> None:
    meter = Meter(Prices([("model", Price(input=0, output=0))]))
    with meter.offline():
        meter.chat("worker", "model", Usage(300, 40), seconds=1)
    meter.chat("reader", "model", Usage(1000, 100), seconds=1)
    usage = meter.report(seconds=5).to_json()
    spent = usage["offline"]["seconds"] = 3.0
    found = cost_measures(Question("q", "?"), Outcome(usage=usage, seconds=5))
    assert (found["input_tokens"], found["online_input_tokens"]) == (1300, 1000)
    assert (found["offline_tokens"], found["offline_seconds"]) == (340, spent)
    assert found["online_seconds"] == 2
    assert usage["offline"]["calls"] == 1


def test_an_unknown_price_is_no_price() -> None:
    meter = Meter(Prices([]))
    meter.chat("reader", "free?", Usage(1, 1), seconds=1)
    assert "usd" not in cost_measures(Question("q", "?"), Outcome(usage=meter.report().to_json()))


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
