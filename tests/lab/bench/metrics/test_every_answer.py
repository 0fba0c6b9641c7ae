"""What an answer costs, whether it is a refusal, and whether it is right."""

from __future__ import annotations

import pytest

from colligate.lab.bench.metrics.every_answer import (
    abstention_measures,
    cost_measures,
    verdict_measures,
)
from colligate.lab.bench.outcome import Outcome, Piece
from colligate.lab.bench.question import Question, QuestionTask
from colligate.models import Usage, metering
from colligate.models.metering import Meter


@pytest.fixture
def _dear(monkeypatch: pytest.MonkeyPatch) -> None:
    def cost(_: str, usage: Usage) -> float:
        return (2 * usage.input_tokens + 10 * usage.output_tokens) / 1e6

    monkeypatch.setattr(metering, "find_cost", cost)


@pytest.mark.usefixtures("_dear")
def test_costs_are_those_of_the_meter() -> None:
    meter = Meter()
    meter.chat("reader", "dear", Usage(1000, 100), seconds=1)
    meter.chat("worker", "dear", Usage(500, 10), seconds=1)
    meter.scoring("scorer", "dear", passes=7, seconds=1)
    meter.retrieval()
    found = cost_measures(Question("q", "?"), Outcome(usage=meter.report().to_json(), seconds=2.5))
    assert (found["calls"], found["tokens"], found["searches"]) == (2, 1610, 1)
    assert (found["scoring_passes"], found["seconds"]) == (7, 2.5)
    assert found["usd"] == pytest.approx(0.0041)
    assert (found["output_tokens_reader"], found["calls_worker"]) == (100, 1)


@pytest.mark.usefixtures("_dear")
def test_what_was_spent_on_documents_alone_is_apart() -> None:
    meter = Meter()
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
    assert found["no_rounds"] == (rounds == 0)


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


# Right, refused, or wrong with a citation

CITED = (Piece("d", 0, 4, "text"),)


def judge(gold, said, short="", *, task=QuestionTask.SHORT, citations=CITED):
    question = Question("q", "?", answers=(gold,), task=task)
    found = bool(said or short)
    outcome = Outcome(text=said, short=short, found=found, citations=citations if found else ())
    return verdict_measures(question, outcome)


@pytest.mark.parametrize(
    ("gold", "said", "short", "right"),
    [
        ("art", "It was a party. [1]", "", 0),
        ("13", "In 2013. [1]", "2013", 0),
        ("13", "He hit 13. [1]", "13 three-pointers", 1),
        ("the people of France", "It was. [1]", "People of France", 1),
        ("yes", "Both are in Oslo. [1]", "Yes, both", 1),
        ("no", "There is no sign that they differ. [1]", "", 0),
        ("$1577.00", "It was 1,577 million. [1]", "", 1),
        ("5.4%", "The rate was 5.4 percent. [1]", "", 1),
        ("5.4%", "The rate was 15.4 percent. [1]", "", 0),
        ("5", "It took 1.5 years. [1]", "1.5 years", 0),
        ("5.2%", "It was -5.2%. [1]", "-5.2%", 0),
        ("5.2 percent", "It was -5.2 percent. [1]", "", 0),
        ("5", "It was \N{MINUS SIGN}$5. [1]", "", 0),
        ("-5.2%", "It fell (-5.2 percent). [1]", "", 1),
        ("577", "It was 1,577. [1]", "1,577", 0),
        ("clause 4", "It is clause 4.2. [1]", "clause 4.2", 0),
        ("clause 4", "Clause 4.2 [1]", "clause 4.2a", 0),
        # What stands at the end of a number is no part of it, nor what parts its thousands.
        ("clause 4.2", "See clause 4.2. [1]", "", 1),
        ("in 1999", "It began in 1999, and ended. [1]", "", 1),
        ("5", "There were 5. [1]", "", 1),
        ("1,577 tenants", "There were 1577 tenants. [1]", "", 1),
        ("1 577", "There were 1 577. [1]", "", 1),
        ("577", "In 2019 577 came. [1]", "", 1),
        ("555 1234", "Call 555 1234. [1]", "", 1),
        # The end of a span has no sign.
        ("2020", "It was let in 2019-2020. [1]", "", 1),
        ("10%", "It is 5%-10%. [1]", "", 1),
        ("20", "It is 10€\N{EN DASH}20€. [1]", "", 1),
        ("15", "From the 12.-15. of May. [1]", "", 1),
        ("19", "It was COVID-19. [1]", "", 1),
        ("5", "It varies by +/-5. [1]", "", 1),
        # A minus may be written in several ways, and within marks.
        ("-5.2", r"It is \boxed{-5.2}. [1]", "", 1),
        ("5.2", r"It is \boxed{-5.2}. [1]", "", 0),
        ("-5.2%", "It was `-5.2%`. [1]", "", 1),
        ("-5.2%", "It was [-5.2%]. [1]", "", 1),
        ("-5.2%", "Change:-5.2%. [1]", "", 1),
        ("-5.2%", "It was \N{EN DASH}5.2%. [1]", "", 1),
        ("-5.2%", "It was \N{NON-BREAKING HYPHEN}5.2%. [1]", "", 1),
        ("-5.2", "It was -US$5.2 million. [1]", "", 1),
        ("5.2", "It was -US$5.2 million. [1]", "", 0),
        ("-5.2%", "It was minus 5.2%. [1]", "", 1),
        ("5.2%", "It was minus 5.2%. [1]", "", 0),
        ("minus 5.2 percent", "It was -5.2 percent. [1]", "", 1),
        ("5%", "It varies by plus or minus 5%. [1]", "", 1),
        # Two numbers that a blank parts may be one, or not.
        ("250", "In Q3 250 people came. [1]", "", 1),
        ("150 flats", "In phase 2 150 flats were built. [1]", "", 1),
        ("Boeing 747", "A Boeing 747 400 miles away. [1]", "", 1),
        ("1,577", "There were 1 577. [1]", "", 1),
        ("1 577 tenants", "There were 1,577 tenants. [1]", "", 1),
        ("June 5, 2019", "On June 5,2019. [1]", "", 1),
    ],
)
def test_an_answer_is_right_in_whole_words_or_as_a_figure(gold, said, short, right):
    measures = judge(gold, said, short)
    assert measures.pop("answer_words") == len((short or said.removesuffix(" [1]")).split())
    assert measures == {"right": right, "refused": 0, "wrong_cited": 1 - right}


def test_the_short_answer_decides_where_there_is_one():
    judged = judge("Oslo", "Not Oslo, Lund. [1]", "Lund")
    assert (judged["right"], judged["answer_words"]) == (0, 1)
    assert judge("Oslo", "Not Oslo, Lund. [1]")["answer_words"] == 3


def test_a_whole_answer_that_repeats_both_choices_is_not_right():
    question = Question("q", "Who was born first, Ann or Bob?", answers=("Ann",))
    whole = Outcome(text="Ann was born in Lund. Bob in Oslo. [1]", found=True, citations=CITED)
    assert verdict_measures(question, whole)["right"] == 0
    short = Outcome(text="Ann. [1]", short="Ann", found=True, citations=CITED)
    assert verdict_measures(question, short)["right"] == 1


def test_a_refusal_is_wrong_but_cites_nothing():
    nothing = {"right": 0, "refused": 1, "wrong_cited": 0, "answer_words": 0}
    assert judge("Oslo", "") == nothing


def test_a_question_without_an_answer_is_refused_rightly():
    question = Question("q", "?", answerable=False)
    assert verdict_measures(question, Outcome())["right"] == 1
    answered = Outcome(text="Oslo. [1]", found=True, citations=CITED)
    wrong = {"right": 0, "refused": 0, "wrong_cited": 1, "answer_words": 1}
    assert verdict_measures(question, answered) == wrong


def test_a_failure_is_neither_right_nor_refused():
    failed = Outcome(error="ServerFailed: down")
    assert verdict_measures(Question("q", "?", answerable=False), failed)["right"] == 0


def test_a_judged_answer_counts_only_as_a_figure():
    assert judge("$12.5", "12.50 dollars [1]", task=QuestionTask.JUDGED)["right"] == 1
    assert judge("Sales grew because of prices.", "x", task=QuestionTask.JUDGED) is None
