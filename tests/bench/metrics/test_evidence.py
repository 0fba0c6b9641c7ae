from __future__ import annotations

import pytest

from colligate.bench.metrics.by_question import abstention_measures, cost_measures
from colligate.bench.metrics.evidence import evidence_measures, gold_recall
from colligate.bench.outcome import Outcome, Piece
from colligate.bench.question import Candidate, Question, Task
from colligate.models.base import Price, Usage
from colligate.models.metering import Meter, Prices


def piece(document: str, text: str = "some words here", title: str = "") -> Piece:
    return Piece(document, 0, len(text), text, title)


def test_gold_recall_of_one_and_of_all() -> None:
    assert gold_recall(["a", "b"], ["b", "x"]) == {"any": 1, "all": 0, "share": 0.5}
    assert gold_recall(["a"], []) == {"any": 0, "all": 0, "share": 0}
    assert gold_recall(["a", "b"], ["b", "a", "a"]) == {"any": 1, "all": 1, "share": 1}


def test_each_stage_is_measured_by_its_name() -> None:
    question = Question("q", "who?", ("Ann",), gold=("g1", "g2"))
    outcome = Outcome(
        found=True,
        evidence=(piece("g1", "It was Ann."), piece("x")),
        retrieved=(piece("g1"), piece("g2"), piece("x")),
        stages={"local": ("g1", "x"), "kept": ()},
    )
    found = evidence_measures(question, outcome)
    assert found["gold_all_retrieved"] == 1
    assert (found["gold_any_evidence"], found["gold_share_evidence"]) == (1, 0.5)
    assert (found["gold_share_local"], found["gold_any_kept"]) == (0.5, 0)
    assert found["answer_in_evidence"] == 1


def test_an_answer_in_a_title_or_over_two_passages_was_shown() -> None:
    question = Question("q", "who?", ("Ann Lee",))
    shown = evidence_measures(question, Outcome(evidence=(piece("x", "no name", title="Ann Lee"),)))
    hidden = evidence_measures(question, Outcome(evidence=(piece("x", "no name"),)))
    assert (shown["answer_in_evidence"], hidden["answer_in_evidence"]) == (1, 0)


def test_who_never_searched_has_no_recall_of_searches_but_who_broke_has_none_found() -> None:
    question = Question("q", "who?", gold=("g",))
    silent = evidence_measures(question, Outcome(evidence=(piece("g"),)))
    broken = evidence_measures(question, Outcome(error="ServerFailed: gone"))
    empty = evidence_measures(question, Outcome(usage={"retrieval_rounds": 1}))
    assert "gold_any_retrieved" not in silent
    for found in (broken, empty):
        assert found["gold_any_retrieved"] == found["gold_any_evidence"] == 0


def test_compression_is_words_of_the_documents_over_words_of_the_evidence() -> None:
    documents = (Candidate("a", text="one two three four"), Candidate("b", text="five six"))
    question = Question("q", "who?", ("x",), documents=documents)
    found = evidence_measures(question, Outcome(evidence=(piece("a", "two three"),)))
    assert (found["compression"], found["evidence_words"]) == (3, 2)
    unknown = Question("q", "who?", ("x",), documents=(Candidate("a"),))
    found = evidence_measures(unknown, Outcome(evidence=(piece("a"),)))
    assert "compression" not in found


def test_without_gold_the_size_of_the_evidence_is_all_that_is_said() -> None:
    shown = Outcome(evidence=(piece("a"),))
    assert evidence_measures(Question("q", "who?"), shown) == {"evidence_words": 3}


@pytest.mark.parametrize("task", [Task.LONG, Task.JUDGED])
def test_whole_paragraphs_are_not_sought_in_the_evidence(task: Task) -> None:
    question = Question("q", "why?", ("some words here",), task=task)
    assert "answer_in_evidence" not in evidence_measures(question, Outcome(evidence=(piece("a"),)))


def test_the_evidence_of_what_broke_is_not_the_shortest() -> None:
    question = Question("q", "who?", ("Ann",), gold=("g",))
    assert evidence_measures(question, Outcome())["evidence_words"] == 0
    assert "evidence_words" not in evidence_measures(question, Outcome(error="ModelError: no"))


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


def test_costs_are_those_of_the_meter() -> None:
    meter = Meter(Prices([("dear", Price(input=2, output=10))]))
    meter.chat("reader", "dear", Usage(1000, 100), seconds=1)
    meter.chat("worker", "dear", Usage(500, 10), seconds=1)
    meter.scoring("scorer", "dear", passes=7, seconds=1)
    meter.retrieval()
    found = cost_measures(Outcome(usage=meter.report().to_json(), seconds=2.5))
    assert (found["calls"], found["tokens"], found["rounds"]) == (2, 1610, 1)
    assert (found["scoring_passes"], found["seconds"]) == (7, 2.5)
    assert found["usd"] == pytest.approx(0.0041)
    assert (found["output_tokens_reader"], found["calls_worker"]) == (100, 1)


def test_an_unknown_price_is_no_price() -> None:
    meter = Meter(Prices([]))
    meter.chat("reader", "free?", Usage(1, 1), seconds=1)
    assert "usd" not in cost_measures(Outcome(usage=meter.report().to_json()))
