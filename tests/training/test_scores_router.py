"""The router's metrics: counted as RDR2's evaluation of its router counts them."""

from __future__ import annotations

import pytest

from colligate.models import Message
from colligate.training.samples import Sample
from colligate.training.scores_router import score, shown_subtree, summed

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


def sample(target: str) -> Sample:
    messages = (Message("user", "When?"), Message("assistant", target))
    return Sample("q/0", "router", messages, {"shown": SHOWN, "headings": HEADINGS})


ANSWER = sample("[ANSWER] 3: In 2003 the park opened\n[ANSWER] 4: The park was sold in")
EXPAND = sample("[EXPAND] 6: ==Rides==\n[EXPAND] 10: ==Prices==")
REFUSE = sample("Cannot answer")


@pytest.mark.parametrize(
    ("reply", "f1"),
    [
        ("[ANSWER] 3: In 2003\n[ANSWER] 4: The park", 1.0),
        ("[ANSWER] 3", 2 / 3),
        ("[ANSWER] 3, 4, 5", 0.8),
        ("[ANSWER] 5", 0.0),
        ("Cannot answer", 0.0),
        ("hm", 0.0),
    ],
)
def test_paragraphs_are_measured_where_some_are_right(reply: str, f1: float) -> None:
    found = score(ANSWER, reply)

    assert found["ans_f1"] == pytest.approx(f1)
    assert "ref_acc" not in found
    assert "exp_pre" not in found


@pytest.mark.parametrize(
    ("reply", "precision"),
    [
        ("[EXPAND] 10: ==Prices==", 1.0),  # precision alone: the other heading may be missing
        ("[EXPAND] 10: x\n[EXPAND] 8: ===Records===", 0.5),
        ("[EXPAND] 0: ==Introduction==", 0.0),
        ("[ANSWER] 3", 0.0),
    ],
)
def test_headings_are_measured_by_precision(reply: str, precision: float) -> None:
    assert score(EXPAND, reply)["exp_pre"] == pytest.approx(precision)


def test_a_mixed_sample_is_measured_by_both() -> None:
    both = sample("[ANSWER] 3: In 2003 the park opened\n[EXPAND] 6: ==Rides==")

    found = score(both, "[ANSWER] 3\n[EXPAND] 10: ==Prices==")

    assert (found["ans_f1"], found["exp_pre"]) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        ("Cannot answer", 1.0),
        ("nothing of it", 1.0),  # it chooses nothing, though it also says nothing
        ("[ANSWER] 2: ==History==", 1.0),  # what breaks a rule is no action
        ("[ANSWER] 3", 0.0),
        ("[EXPAND] 10", 0.0),
    ],
)
def test_a_refusal_is_right_where_nothing_is_chosen(reply: str, right: float) -> None:
    assert score(REFUSE, reply)["ref_acc"] == right


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
        found = score(each, reply)
        assert (found["xpl_avg"], found["col_rate"]) == (expelled, collapsed)


def test_a_heading_with_a_hidden_part_above_what_is_shown_is_not_collapsed() -> None:
    # 7 is not shown, and stands between a heading and what is shown under it.
    found = score(EXPAND, "[EXPAND] -1: Six Flags")

    assert found["xpl_avg"] == 1.0


def test_means_are_taken_over_the_samples_that_have_the_metric() -> None:
    scores = [score(ANSWER, "[ANSWER] 3, 4"), score(ANSWER, "hm"), score(REFUSE, "Cannot answer")]

    assert summed(scores) == {
        "ans_f1": 0.5,
        "ref_acc": 1.0,
        "xpl_avg": 0.0,
        "col_rate": pytest.approx(1 / 3),
    }
    assert summed([]) == {}


@pytest.mark.parametrize(
    ("shown", "why"), [("", "no nodes"), ("no nodes", "no nodes"), ("1: a\n1: b", "a node twice")]
)
def test_what_is_no_subtree_is_said(shown: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        shown_subtree(shown, [])
