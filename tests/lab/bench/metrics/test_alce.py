"""QAMPARI and ASQA: worked by hand from ALCE's rules."""

from __future__ import annotations

import pytest

from colligate.lab.bench.metrics.alce import asqa_scores, qampari_measures, qampari_scores
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question, QuestionReading, QuestionTask

READINGS = (QuestionReading("when?", ("1932", "thirty-two")), QuestionReading("where?", ("Paris",)))


def test_str_em_is_a_share_of_readings_and_hit_all_of_them() -> None:
    assert asqa_scores("In 1932.", READINGS) == {"str_em": 0.5, "str_hit": 0, "length": 2}
    three = (*READINGS, QuestionReading("who?", ("Ann",)))
    assert asqa_scores("1932, Paris", three) == {"str_em": 2 / 3, "str_hit": 0, "length": 2}
    found = asqa_scores("In Paris, in Thirty-Two [1].\nLater lines do not count: Rome.", READINGS)
    assert found == {"str_em": 1, "str_hit": 1, "length": 4}
    assert asqa_scores("Rome\n1932 Paris", READINGS) == {"str_em": 0, "str_hit": 0, "length": 1}
    assert asqa_scores("", READINGS) == {"str_em": 0, "str_hit": 0, "length": 0}


def test_qampari_of_half_a_list() -> None:
    members = [("New York", "NYC"), ("Rome",), ("Oslo",)]
    found = qampari_scores("NYC, the Rome, Berlin, Rome [1]., \nOslo", members)
    # said: nyc, rome, berlin, rome: three of four right, one of them twice; two of three found.
    assert found["qampari_precision"] == 3 / 4
    assert found["qampari_recall"] == found["qampari_recall_5"] == 2 / 3
    assert found["qampari_f1"] == pytest.approx(2 * (3 / 4) * (2 / 3) / (3 / 4 + 2 / 3))


def test_a_short_answer_of_a_line_each_is_a_list_too() -> None:
    question = Question(
        "q", "who?", task=QuestionTask.SET, members=(("Ann",), ("Bob Lee",), ("Cy",))
    )
    said = Outcome("They are Ann and others.", "1. Ann\n- Bob Lee,\n\nCy", found=True)
    found = qampari_measures(question, said)
    assert found is not None
    assert (found["qampari_precision"], found["qampari_recall"]) == (1, 1)
    assert found["qampari_recall_raw"] == 0  # the whole is a sentence
    in_a_line = Outcome("Ann, Cy", "Ann, Cy.", found=True)
    assert qampari_measures(question, in_a_line) == {
        name: value
        for plain, value in qampari_scores("Ann, Cy", question.members).items()
        for name in (plain, f"{plain}_raw")
    }
    film = Question("q", "what?", task=QuestionTask.SET, members=(("Part 2. Go - Away",), ("Cy",)))
    both = qampari_measures(film, Outcome("They are two.", "Part 2. Go - Away\n- Cy", found=True))
    assert both is not None
    assert both["qampari_recall"] == 1
    without_short = qampari_measures(question, Outcome("Ann\nBob Lee", found=True))
    assert without_short is not None
    assert without_short["qampari_recall"] == 1 / 3  # ALCE: the first line


def test_qampari_asks_for_five_at_most() -> None:
    members = [(name,) for name in "a1 b1 c1 d1 e1 f1 g1 h1 i1 j1".split()]
    found = qampari_scores("a1, b1, c1, d1, e1, f1", members)
    assert found["qampari_recall"] == 0.6
    assert found["qampari_recall_5"] == found["qampari_f1_5"] == 1
    assert qampari_scores("a1, b1", members)["qampari_recall_5"] == 2 / 5


def test_qampari_wants_equality_and_an_empty_list_has_nothing() -> None:
    assert qampari_scores("Rome in Italy", [("Rome",)])["qampari_f1"] == 0
    assert set(qampari_scores(" ., ", [("Rome",)]).values()) == {0}
    assert set(qampari_scores("", [("Rome",)]).values()) == {0}
