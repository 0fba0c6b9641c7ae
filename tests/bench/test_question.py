from __future__ import annotations

from dataclasses import replace

from colligate.bench.question import Question, QuestionReading, QuestionTask


def test_right_answers_of_every_kind_of_question() -> None:
    question = Question("q", "?", answers=("a", "b"))
    readings = (QuestionReading("x?", ("x", "ex")), QuestionReading("y?", ()))
    members = (("m", "em"), ("n",))
    assert question.right_answers == ("a", "b")
    ambiguous = replace(question, task=QuestionTask.READINGS, readings=readings)
    assert ambiguous.right_answers == ("x",)
    assert replace(question, task=QuestionTask.SET, members=members).right_answers == ("m", "n")
    long = Question("q", "?", task=QuestionTask.LONG, claims=("c",))
    assert long.right_answers == ("c",)
