"""Scores of replies, each against a value worked out by hand."""

from __future__ import annotations

import json
import re

import pytest

from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.lab.bench.question import Question
from colligate.lab.training.longrefiner import (
    CurationSettings,
    Label,
    scope_sample,
    selection_sample,
    structuring_pairs,
)
from colligate.lab.training.samples import Sample
from colligate.lab.training.scores import average_values, score_reply
from colligate.models import Completion, Message, Usage
from colligate.strategies.longrefiner.selection import selection_messages
from colligate.strategies.longrefiner.structuring import build_article

# The router, counted as RDR2's evaluation of its router does.


SHOWN = """\
-1: Six Flags
\t0: ==Introduction==
\t2: ==History==
\t\t3: In 2003 the park opened the Superman tower.
\t\t4: The park was sold in 1969.
\t\t5: ==1969 was the year it was sold==
\t6: ==Rides==
\t\t8: ===Records===
\t10: ==Prices=="""
HEADINGS = [-1, 0, 2, 6, 8, 10]


def routing(target: str) -> Sample:
    messages = (Message("user", "When?"), Message("assistant", target))
    return Sample("q/0", "router", messages, {"shown": SHOWN, "headings": HEADINGS})


ANSWER = routing("[ANSWER] 3: In 2003 the park opened\n[ANSWER] 4: The park was sold in")
EXPAND = routing("[EXPAND] 6: ==Rides==\n[EXPAND] 10: ==Prices==")
REFUSE = routing("Cannot answer")


@pytest.mark.parametrize(
    ("sample", "reply", "metric", "value"),
    [
        (ANSWER, "[ANSWER] 3: In 2003\n[ANSWER] 4: The park", "ans_f1", 1.0),
        (ANSWER, "[ANSWER] 3", "ans_f1", 2 / 3),
        (ANSWER, "[ANSWER] 3, 4, 5", "ans_f1", 0.8),
        (ANSWER, "Cannot answer", "ans_f1", 0.0),
        (ANSWER, "hm", "ans_f1", 0.0),
        (EXPAND, "[EXPAND] 10: ==Prices==", "exp_pre", 1.0),  # another heading may be missing
        (EXPAND, "[EXPAND] 10: x\n[EXPAND] 8: ===Records===", "exp_pre", 0.5),
        (EXPAND, "[ANSWER] 3", "exp_pre", 0.0),
        (REFUSE, "Cannot answer", "ref_acc", 1.0),
        (REFUSE, "nothing of it", "ref_acc", 1.0),  # it chooses nothing, though it says nothing
        (REFUSE, "[ANSWER] 2: ==History==", "ref_acc", 1.0),  # what breaks a rule is no action
        (REFUSE, "[EXPAND] 10", "ref_acc", 0.0),
    ],
)
def test_actions_are_measured_where_some_are_right(
    sample: Sample, reply: str, metric: str, value: float
) -> None:
    found = score_reply(sample, reply)

    assert found[metric] == pytest.approx(value)
    assert {"ans_f1", "exp_pre", "ref_acc"} & set(found) == {metric}


@pytest.mark.parametrize(
    ("reply", "expelled", "collapsed"),
    [
        ("[ANSWER] 2: ==History==\n[EXPAND] 2\n[EXPAND] 3\n[ANSWER] 9", 4.0, 0.0),
        ("[EXPAND] 6\n[ANSWER] 5", 0.0, 0.0),  # 5 only looks like a heading
        ("The tower opened in 2003.", 0.0, 1.0),
        ("", 0.0, 1.0),
        ("cannot answer that", 0.0, 0.0),
    ],
)
def test_broken_rules_and_collapses_are_counted_of_every_sample(
    reply: str, expelled: float, collapsed: float
) -> None:
    for each in (ANSWER, EXPAND, REFUSE):
        found = score_reply(each, reply)
        assert (found["xpl_avg"], found["col_rate"]) == (expelled, collapsed)


# LongRefiner's three tasks.


QUESTION = Question("q", "Who built the mill?")


def paragraph(about: str) -> str:
    told = " ".join(f"of the {about} word {i} is said" for i in range(8))
    return f"The {about} begins here and {told} until the {about} ends."


PARTS = ("lead", "flood", "war", "peace", "wheel", "stone")
TEXT = f"""# The Mill

{paragraph("lead")}

## History

{paragraph("flood")}

{paragraph("war")}

### After it

{paragraph("peace")}

## Machines

{paragraph("wheel")}

{paragraph("stone")}
"""
MILL = Document("mill", "The Mill", TEXT, markdown_tree(TEXT, "mill"), language="en")


def piece(about: str) -> str:
    return f"The {about} begins here and of ... until the {about} ends."


def scope(label: str) -> Sample:
    return scope_sample(QUESTION, Label(query_type=label))


@pytest.fixture(scope="module")
def structuring() -> Sample:
    (sample,) = structuring_pairs(MILL, CurationSettings()).samples
    return sample


def selection(*titles: str) -> Sample:
    shown = build_article(MILL)
    reply = Completion(text=str(list(titles)), usage=Usage(0, 0), model="teacher")
    (sample,) = selection_sample(
        QUESTION, shown, selection_messages(QUESTION.text, shown), reply
    ).samples
    return sample


# Scope


@pytest.mark.parametrize(
    ("label", "reply", "wanted"),
    [
        ("Local", "[Local]", {"accuracy": 1, "local_accuracy": 1, "named": 1}),
        ("Local", "Global, I think", {"accuracy": 0, "local_accuracy": 0, "named": 1}),
        ("Global", "It is [global], not local", {"accuracy": 1, "global_accuracy": 1, "named": 1}),
        ("Global", "I cannot say.", {"accuracy": 0, "global_accuracy": 0, "named": 0}),
    ],
)
def test_a_label_is_right_or_wrong(label, reply, wanted):
    assert score_reply(scope(label), reply) == wanted


def test_labels_count_the_same_in_balance():
    local, global_ = scope("Local"), scope("Global")
    always_local = [score_reply(sample, "[Local]") for sample in (local, local, local, global_)]
    assert average_values(always_local) == {
        "accuracy": 0.75,
        "local_accuracy": 1.0,
        "global_accuracy": 0.0,
        "named": 1.0,
        "balanced_accuracy": 0.5,
    }
    assert "balanced_accuracy" not in average_values([score_reply(local, "[Local]")])
    assert average_values([]) == {}


# Selection


@pytest.mark.parametrize(
    ("wanted", "reply", "f1"),
    [
        (("History", "Machines"), "['History', 'Machines']", 1),
        (("History", "Machines"), "['abstract', 'History']", 1 / 2),
        (("History",), "['History', 'After it', 'Machines']", 1 / 2),
        (("History",), "['Fish']", 0),
        ((), "[]", 1),
        ((), "None of these helps.", 1),
        ((), "['Machines']", 0),
    ],
)
def test_titles_are_compared_as_inference_reads_them(wanted, reply, f1):
    values = score_reply(selection(*wanted), reply)
    of_kind = {"some_f1": f1} if wanted else {"none_accuracy": f1}
    assert values == pytest.approx({"exact": float(f1 == 1), "title_f1": f1, **of_kind})


# Structuring


LEAD = f"<abstract>{piece('lead')}</abstract>"
HISTORY = (
    f"<section: Past>{piece('flood')}<br>{piece('war')}"
    f"<sub-section: Later>{piece('peace')}</sub-section: Later></section: Past>"
)
MACHINES = f"<section: Works>{piece('wheel')}<br>{piece('stone')}</section: Works>"


WHOLE = LEAD + HISTORY + MACHINES
LATE = f"<br>{piece('wheel')}<section: Works>{piece('stone')}</section: Works>"


@pytest.mark.parametrize(
    ("reply", "f1", "level_f1"),
    [
        # Wanted: sections at paragraphs 2 and 5 of six, a sub-section at 4.
        (WHOLE, 1, 1),
        # No sub-section.
        (re.sub("</?sub-section: Later>", "<br>", WHOLE), 0.8, 0.8),
        # The sub-section is a section.
        (WHOLE.replace("sub-section", "section"), 1, 2 / 3),
        # A section too many, in the middle of the last one.
        (LEAD + HISTORY + MACHINES.replace("<br>", "<section: Stones>"), 6 / 7, 6 / 7),
        # The second section begins a paragraph too late.
        (LEAD + HISTORY + LATE, 2 / 3, 2 / 3),
        (f"<section: All>{'<br>'.join(map(piece, PARTS))}</section: All>", 0, 0),
    ],
)
def test_boundaries_are_the_paragraphs_that_sections_begin_with(structuring, reply, f1, level_f1):
    values = score_reply(structuring, reply)
    assert (values["boundary_f1"], values["level_f1"]) == pytest.approx((f1, level_f1))


def test_coverage_is_the_share_of_the_text_in_sections(structuring):
    values = score_reply(structuring, LEAD + MACHINES)
    visible = {about: len("".join(paragraph(about).split())) for about in PARTS}
    there = visible["lead"] + visible["wheel"] + visible["stone"]
    assert values["coverage"] == pytest.approx(there / sum(visible.values()))
    assert values["usable"] == (values["coverage"] >= 0.5)
    assert score_reply(structuring, LEAD)["usable"] == 0


# DualRAG's three roles.


PASSAGE = '<passages>\n<passage number="1">\nAda Mercer was born in Lund.\n</passage>\n</passages>'


def role_sample(task, target) -> Sample:
    messages = (Message("user", PASSAGE), Message("assistant", json.dumps(target)))
    return Sample(id=task, task=task, messages=messages)


def reasoner(need) -> Sample:
    return role_sample("reasoner", {"thought": "So it is.", "need_retrieve": need})


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
        role_sample("identifier", entities(Ada_Mercer=["Where was Ada Mercer born?"])),
        role_sample("summarizer", summary(BORN)),
        role_sample("summarizer", summary()),
    ],
)
def test_the_reply_that_was_to_be_learnt_is_worth_all(made):
    values = score_reply(made, made.target)
    assert all(value == 1 for name, value in values.items() if name[0] != "_")
    assert score_reply(made, "no idea") != values
    assert not any(value for name, value in score_reply(made, "no idea").items() if name[0] != "_")


def test_verdicts_are_counted_by_either_kind():
    replies = [(True, True), (True, True), (True, False), (False, False), (False, True)]
    scores = [score_reply(reasoner(right), verdict(said)) for right, said in replies]
    scores.append(score_reply(reasoner(False), "no JSON"))
    values = average_values(scores)
    assert values == {
        "need_retrieve_accuracy": pytest.approx(3 / 6),
        "need_retrieve_f1": pytest.approx(2 * 2 / (3 + 3)),
        "enough_f1": pytest.approx(2 * 1 / (3 + 2)),
    }


def test_entities_are_the_same_in_other_words_and_missing_ones_cost_recall():
    made = role_sample(
        "identifier",
        entities(Ada_Mercer=["Where was Ada Mercer born?"], Lund=["country of Lund"]),
    )
    said = entities(MERCER_Ada=["Ada Mercer birthplace"], Oslo=["Oslo mayor"])
    values = score_reply(made, json.dumps(said))
    assert values["entity_f1"] == 0.5
    # {where, was, ada, mercer, born, country, of, lund}, {ada, mercer, birthplace, oslo, mayor}
    assert values["keyword_f1"] == pytest.approx(2 * 2 / (8 + 5))
    assert score_reply(made, json.dumps({"entities": []}))["entity_f1"] == 0


def test_nothing_found_is_right_only_where_there_is_nothing():
    some, none = role_sample("summarizer", summary(BORN)), role_sample("summarizer", summary())
    found, empty = json.dumps(summary(BORN)), json.dumps(summary())
    assert score_reply(some, empty) == {"none_accuracy": 0, "token_f1": 0}
    assert score_reply(none, empty) == {"none_accuracy": 1, "none_recall": 1}
    assert score_reply(none, found) == {"none_accuracy": 0, "none_recall": 0, "quote_precision": 1}
    values = average_values(
        [score_reply(some, found), score_reply(none, found), score_reply(none, empty)]
    )
    assert values["none_accuracy"] == pytest.approx(2 / 3)
    assert values["none_recall"] == 0.5
    assert values["token_f1"] == 1  # of the one that had something


def test_words_and_quotes_of_a_summary_are_looked_at():
    made = role_sample("summarizer", summary(BORN))
    said = summary(("Ada  Mercer was born", "Ada Mercer came from Lund."), ("from Oslo", ""))
    values = score_reply(made, json.dumps(said))
    assert values["quote_precision"] == 0.5
    assert values["token_f1"] == pytest.approx(2 * 3 / (6 + 5))  # ada, mercer, lund
