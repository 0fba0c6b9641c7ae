from __future__ import annotations

import pytest

from colligate.bench.metrics.evidence import evidence_measures, gold_recall, passage_scores
from colligate.bench.outcome import Outcome, Piece
from colligate.bench.question import Candidate, Question, QuestionReading, QuestionTask


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


@pytest.mark.parametrize("task", [QuestionTask.LONG, QuestionTask.JUDGED])
def test_whole_paragraphs_are_not_sought_in_the_evidence(task: QuestionTask) -> None:
    question = Question("q", "why?", ("some words here",), task=task)
    assert "answer_in_evidence" not in evidence_measures(question, Outcome(evidence=(piece("a"),)))


def test_the_evidence_of_what_broke_is_not_the_shortest() -> None:
    question = Question("q", "who?", ("Ann",), gold=("g",))
    assert evidence_measures(question, Outcome())["evidence_words"] == 0
    assert "evidence_words" not in evidence_measures(question, Outcome(error="ModelError: no"))


# RDR2's passages: worked by hand from its rules

READINGS = (QuestionReading("when?", ("1932",)), QuestionReading("where?", ("Paris",)))


def test_passages_of_rdr2() -> None:
    first, second = "He left in 1932 for home", "Paris"
    found = passage_scores([first, second], READINGS, k=5)
    assert found["p_em"] == found["p_hit"] == 1
    assert found["p_score"] == pytest.approx((0.5 / 1 + 0.5 / 2) / 5)
    assert found["p_len"] == (6 + 1) / 5


def test_the_best_p_score_for_five_is_its_published_bound() -> None:
    passages = ["Paris 1932"] * 7
    assert 100 * passage_scores(passages, READINGS, k=5)["p_score"] == pytest.approx(
        45.67, abs=0.01
    )


def test_no_passages_serve_nobody() -> None:
    assert set(passage_scores([], READINGS).values()) == {0}
    assert passage_scores(["x"] * 5 + ["1932 Paris"], READINGS)["p_em"] == 0  # beyond k
