"""LongRefiner's scores, each against a value worked out by hand."""

import re

import pytest

from colligate.bench.question import Question
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.models import Completion, Message
from colligate.models.base import Usage
from colligate.strategies.longrefiner.selection import selection_messages
from colligate.strategies.longrefiner.structuring import build_article
from colligate.training.longrefiner_samples import (
    Label,
    Pairing,
    scope_sample,
    selection_sample,
    structuring_pairs,
)
from colligate.training.samples import Sample
from colligate.training.scores_longrefiner import score, summed

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
    (sample,) = structuring_pairs(MILL, Pairing()).samples
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
    assert score(scope(label), reply) == wanted


def test_labels_count_the_same_in_balance():
    local, global_ = scope("Local"), scope("Global")
    always_local = [score(sample, "[Local]") for sample in (local, local, local, global_)]
    assert summed(always_local) == {
        "accuracy": 0.75,
        "local_accuracy": 1.0,
        "global_accuracy": 0.0,
        "named": 1.0,
        "balanced_accuracy": 0.5,
    }
    assert "balanced_accuracy" not in summed([score(local, "[Local]")])
    assert summed([]) == {}


# Selection


@pytest.mark.parametrize(
    ("wanted", "reply", "precision", "recall", "f1"),
    [
        (("History", "Machines"), "['History', 'Machines']", 1, 1, 1),
        (("History", "Machines"), "Machines\nHistory", 1, 1, 1),
        (("History", "Machines"), "['abstract', 'History']", 1 / 2, 1 / 2, 1 / 2),
        (("History",), "['History', 'After it', 'Machines']", 1 / 3, 1, 1 / 2),
        (("abstract",), '{"selected_titles": ["Abstract"]}', 1, 1, 1),
        (("History",), "[]", 0, 0, 0),
        (("History",), "['Fish']", 0, 0, 0),
        ((), "[]", 1, 1, 1),
        ((), "None of these helps.", 1, 1, 1),
        ((), "['Machines']", 0, 0, 0),
    ],
)
def test_titles_are_compared_as_inference_reads_them(wanted, reply, precision, recall, f1):
    values = score(selection(*wanted), reply)
    assert values["title_precision"] == pytest.approx(precision)
    assert values["title_recall"] == pytest.approx(recall)
    assert values["title_f1"] == pytest.approx(f1)
    assert values["exact"] == (f1 == 1)
    if wanted:
        assert (values["some_f1"], "none_accuracy" in values) == (values["title_f1"], False)
    else:
        assert (values["none_accuracy"], "some_f1" in values) == (f1, False)


def test_means_are_over_the_samples_that_have_a_value():
    found = summed([score(selection("History"), "[]"), score(selection(), "[]")])
    assert (found["exact"], found["some_f1"], found["none_accuracy"]) == (0.5, 0.0, 1.0)


# Structuring


LEAD = f"<abstract>{piece('lead')}</abstract>"
HISTORY = (
    f"<section: Past>{piece('flood')}<br>{piece('war')}"
    f"<sub-section: Later>{piece('peace')}</sub-section: Later></section: Past>"
)
MACHINES = f"<section: Works>{piece('wheel')}<br>{piece('stone')}</section: Works>"


def test_the_sample_s_own_reply_is_perfect(structuring):
    names = "coverage usable boundary_precision boundary_recall boundary_f1 level_f1".split()
    assert score(structuring, structuring.target) == dict.fromkeys(names, 1.0)


WHOLE = LEAD + HISTORY + MACHINES
LATE = f"<br>{piece('wheel')}<section: Works>{piece('stone')}</section: Works>"


@pytest.mark.parametrize(
    ("reply", "precision", "recall", "level_f1"),
    [
        # Wanted: sections at paragraphs 2 and 5 of six, a sub-section at 4.
        (WHOLE, 1, 1, 1),
        # No sub-section.
        (re.sub("</?sub-section: Later>", "<br>", WHOLE), 1, 2 / 3, 0.8),
        # The sub-section is a section.
        (WHOLE.replace("sub-section", "section"), 1, 1, 2 / 3),
        # A section too many, in the middle of the last one.
        (LEAD + HISTORY + MACHINES.replace("<br>", "<section: Stones>"), 3 / 4, 1, 6 / 7),
        # The second section begins a paragraph too late.
        (LEAD + HISTORY + LATE, 2 / 3, 2 / 3, 2 / 3),
        (f"<section: All>{'<br>'.join(map(piece, PARTS))}</section: All>", 0, 0, 0),
    ],
)
def test_boundaries_are_the_paragraphs_that_sections_begin_with(
    structuring, reply, precision, recall, level_f1
):
    values = score(structuring, reply)
    assert values["boundary_precision"] == pytest.approx(precision)
    assert values["boundary_recall"] == pytest.approx(recall)
    f1 = 2 * precision * recall / (precision + recall) if precision else 0.0
    assert values["boundary_f1"] == pytest.approx(f1)
    assert values["level_f1"] == pytest.approx(level_f1)


def test_coverage_is_the_share_of_the_text_in_sections(structuring):
    values = score(structuring, LEAD + MACHINES)
    visible = {about: len("".join(paragraph(about).split())) for about in PARTS}
    there = visible["lead"] + visible["wheel"] + visible["stone"]
    assert values["coverage"] == pytest.approx(there / sum(visible.values()))
    assert values["usable"] == (values["coverage"] >= 0.5)
    assert score(structuring, LEAD)["usable"] == 0


@pytest.mark.parametrize(
    "reply", ["", "I have divided the text into three chapters.", "<section: A>"]
)
def test_a_reply_that_is_no_skeleton_covers_nothing(structuring, reply):
    values = score(structuring, reply)
    assert values["coverage"] == values["usable"] == values["boundary_f1"] == 0


def test_a_text_in_which_no_section_begins_tells_nothing_about_boundaries():
    # "Machines" alone is the second stretch: who says nothing would find all boundaries of it.
    history, machines = structuring_pairs(MILL, Pairing(structuring_tokens=300)).samples
    for reply in (machines.target, ""):
        assert set(score(machines, reply)) == {"coverage", "usable"}
    assert score(history, "")["boundary_f1"] == 0


def test_a_boundary_needs_its_first_words_only_roughly(structuring):
    late = MACHINES.replace("The wheel begins here and of ...", "wheel begins here and ...")
    assert score(structuring, LEAD + HISTORY + late)["boundary_f1"] == 1


def test_another_task_is_none_of_these():
    other = Sample("a", "router", (Message("user", "a"), Message("assistant", "b")))
    with pytest.raises(ValueError, match="router is no task of LongRefiner"):
        score(other, "b")
