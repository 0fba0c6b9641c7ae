import json

import pytest

from colligate.models import Message
from colligate.training.samples import Sample
from colligate.training.scores_dualrag import score, summed

PASSAGE = '<passages>\n<passage number="1">\nAda Mercer was born in Lund.\n</passage>\n</passages>'


def sample(task, target) -> Sample:
    messages = (Message("user", PASSAGE), Message("assistant", json.dumps(target)))
    return Sample(id=task, task=task, messages=messages)


def reasoner(need) -> Sample:
    return sample("reasoner", {"thought": "So it is.", "need_retrieve": need})


def verdict(need) -> str:
    return json.dumps({"facts": ["x"], "thought": "I think.", "need_retrieve": need})


def entities(**asked) -> dict:
    rows = [{"entity": name.replace("_", " "), "keywords": q} for name, q in asked.items()]
    return {"entities": rows}


def summary(*rows) -> dict:
    fields = ("passage", "quote", "sentence")
    return {"statements": [dict(zip(fields, (1, *row), strict=True)) for row in rows]}


BORN = ("Ada Mercer was born in Lund.", "Ada Mercer was born in Lund.")


@pytest.mark.parametrize(
    "made",
    [
        reasoner(True),
        reasoner(False),
        sample("identifier", entities(Ada_Mercer=["Where was Ada Mercer born?"])),
        sample("summarizer", summary(BORN)),
        sample("summarizer", summary()),
    ],
)
def test_the_reply_that_was_to_be_learnt_is_worth_all(made):
    values = score(made, made.target)
    assert all(value == 1 for name, value in values.items() if name[0] != "_")
    assert score(made, "no idea") != values
    assert not any(value for name, value in score(made, "no idea").items() if name[0] != "_")


def test_verdicts_are_counted_by_either_kind():
    replies = [(True, True), (True, True), (True, False), (False, False), (False, True)]
    scores = [score(reasoner(right), verdict(said)) for right, said in replies]
    scores.append(score(reasoner(False), "no JSON"))
    values = summed(scores)
    assert values == {
        "need_retrieve_accuracy": pytest.approx(3 / 6),
        "need_retrieve_f1": pytest.approx(2 * 2 / (3 + 3)),
        "enough_f1": pytest.approx(2 * 1 / (3 + 2)),
    }


def test_entities_are_the_same_in_other_words_and_missing_ones_cost_recall():
    made = sample(
        "identifier",
        entities(Ada_Mercer=["Where was Ada Mercer born?"], Lund=["country of Lund"]),
    )
    said = entities(MERCER_Ada=["Ada Mercer birthplace"], Oslo=["Oslo mayor"])
    values = score(made, json.dumps(said))
    assert values["entity_precision"] == values["entity_recall"] == values["entity_f1"] == 0.5
    # {ada, mercer, born, country, lund} and {ada, mercer, birthplace, oslo, mayor}
    assert values["keyword_f1"] == pytest.approx(2 * 2 / (5 + 5))
    assert score(made, json.dumps({"entities": []}))["entity_f1"] == 0


def test_nothing_found_is_right_only_where_there_is_nothing():
    some, none = sample("summarizer", summary(BORN)), sample("summarizer", summary())
    found, empty = json.dumps(summary(BORN)), json.dumps(summary())
    assert score(some, empty) == {"none_accuracy": 0, "token_f1": 0}
    assert score(none, empty) == {"none_accuracy": 1, "none_recall": 1}
    assert score(none, found) == {"none_accuracy": 0, "none_recall": 0, "quote_precision": 1}
    values = summed([score(some, found), score(none, found), score(none, empty)])
    assert values["none_accuracy"] == pytest.approx(2 / 3)
    assert values["none_recall"] == 0.5
    assert values["token_f1"] == 1  # of the one that had something


def test_words_and_quotes_of_a_summary_are_looked_at():
    made = sample("summarizer", summary(BORN))
    said = summary(("Ada  Mercer was born", "Ada Mercer came from Lund."), ("from Oslo", ""))
    values = score(made, json.dumps(said))
    assert values["quote_precision"] == 0.5
    assert values["token_f1"] == pytest.approx(2 * 3 / (6 + 5))  # ada, mercer, lund


def test_no_other_task_is_scored():
    with pytest.raises(ValueError, match="router"):
        score(sample("router", {}), "")
    assert summed([]) == {}
