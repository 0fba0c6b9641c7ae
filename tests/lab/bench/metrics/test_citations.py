from __future__ import annotations

import pytest

from colligate.lab.bench.metrics.evidence import (
    CitedStatement,
    citation_measures,
    nli_citation_measures,
    split_statements,
)
from colligate.lab.bench.outcome import Outcome, Piece
from colligate.lab.bench.question import Question


class Says:
    """Entailment by words: every word of the statement stands in the premise."""

    name = "words"

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, premise: str, hypothesis: str) -> bool:
        self.asked.append((premise, hypothesis))
        return set(hypothesis.strip(".").split()) <= set(premise.split())


def answer(text: str, *cited: tuple[str, str]) -> Outcome:
    pieces = tuple(Piece(document, 0, 1, said, title="T") for document, said in cited)
    return Outcome(text, found=bool(text), citations=pieces)


def test_statements_end_with_their_marks_and_the_rest_by_sentences() -> None:
    assert split_statements("Dr. A came. He left [1][3]. So did B [uncited]. C stayed. D too.") == [
        CitedStatement("Dr. A came. He left", (1, 3)),
        CitedStatement("So did B", ()),
        CitedStatement("C stayed.", ()),
        CitedStatement("D too.", ()),
    ]
    assert split_statements("It rained. [2, 1]") == [CitedStatement("It rained.", (2, 1))]
    assert split_statements("") == []
    assert split_statements("It is [2019] UKSC 5. [1]") == [
        CitedStatement("It is [2019] UKSC 5.", (1,))
    ]


def test_documents_cited_against_the_gold() -> None:
    question = Question("q", "who?", gold=("g1", "g2"))
    outcome = answer("A. [1] B. [2] C. [uncited] D. [3]", ("g1", "x"), ("g1", "y"), ("z", "w"))
    assert citation_measures(question, outcome) == {
        "cited_statements": 0.75,
        "citation_precision": 0.5,
        "citation_recall": 0.5,
    }


def test_a_refusal_cites_nothing_and_without_gold_only_statements_count() -> None:
    gold = Question("q", "who?", gold=("g",))
    assert set(citation_measures(gold, Outcome()).values()) == {0}
    none = Question("q", "who?")
    assert citation_measures(none, answer("A. [1]", ("x", "y"))) == {"cited_statements": 1}


async def test_a_citation_that_the_others_do_without_is_not_precise() -> None:
    # ALCE's rule by hand. "red blue" needs both of its passages; "red" is in one of two: the one
    # without it is needless; the last is cited for what it does not say.
    outcome = answer("red blue. [1][2] red. [1][2] green. [2]", ("a", "x red y"), ("b", "x blue y"))
    found = await nli_citation_measures(Question("q", "?"), outcome, Says())
    assert found["citation_recall_nli"] == pytest.approx(2 / 3)
    assert found["citation_precision_nli"] == pytest.approx((2 + 1 + 0) / 5)


async def test_a_mark_without_a_citation_supports_nothing_and_only_three_count() -> None:
    nli = Says()
    outcome = answer(
        "red. [9] four. [1][2][3][4]", ("a", "one"), ("b", "two"), ("c", "three"), ("d", "four")
    )
    found = await nli_citation_measures(Question("q", "?"), outcome, nli)
    assert found == {"citation_recall_nli": 0, "citation_precision_nli": 0}
    assert nli.asked == [("Title: T\none\nTitle: T\ntwo\nTitle: T\nthree", "four.")]
