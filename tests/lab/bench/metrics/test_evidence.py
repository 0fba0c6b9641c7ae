"""What was retrieved, kept as evidence and cited."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.lab.bench.metrics.evidence import (
    CUTS,
    CitedStatement,
    citation_measures,
    evidence_measures,
    hit_scores,
    nli_citation_measures,
    passage_scores,
    retrieval_measures,
    retrieval_scores,
    split_statements,
)
from colligate.lab.bench.outcome import Outcome, Piece
from colligate.lab.bench.question import Candidate, Question, QuestionReading


def piece(document: str, text: str = "some words here", title: str = "") -> Piece:
    return Piece(document, 0, len(text), text, title)


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
    shortened = Outcome(evidence=(piece("a", "one two three four"),), passages=("two",))
    found = evidence_measures(replace(question, answers=("three",)), shortened)
    assert (found["compression"], found["answer_in_evidence"]) == (6, 0)
    unknown = Question("q", "who?", ("x",), documents=(Candidate("a"),))
    found = evidence_measures(unknown, Outcome(evidence=(piece("a"),)))
    assert "compression" not in found


# RDR2's passages: worked by hand from its rules

READINGS = (QuestionReading("when?", ("1932",)), QuestionReading("where?", ("Paris",)))


def test_passages_of_rdr2() -> None:
    first, second = "He left in 1932 for home", "Paris"
    found = passage_scores([first, second], READINGS, k=5)
    assert found["p_em"] == found["p_hit"] == 1
    assert found["p_score"] == pytest.approx((0.5 / 1 + 0.5 / 2) / 5)
    assert found["p_len"] == (6 + 1) / 5


# Rankings

needs_trec = pytest.mark.skipif(not find_spec("pytrec_eval"), reason="without the extra bench")


@needs_trec
def test_the_example_of_pytrec_eval() -> None:
    # Its README: documents 2 and 3 are relevant; ranked 1, 3, 2 it gives these.
    found = retrieval_scores(["d1", "d3", "d2"], {"d2": 1, "d3": 1})
    assert found["map_at_100"] == pytest.approx(0.5833333333333333)
    assert found["ndcg_at_100"] == pytest.approx(0.6934264036172708)
    assert retrieval_scores(["d3", "d1", "d2"], {"d2": 1})["map_at_100"] == pytest.approx(1 / 3)
    assert retrieval_scores(["d3", "d1", "d2"], {"d2": 1})["ndcg_at_100"] == pytest.approx(0.5)


@needs_trec
def test_cuts_by_hand() -> None:
    ranked = [f"d{i}" for i in range(1, 13)]
    found = retrieval_scores(ranked, {"d2": 1, "d7": 1, "elsewhere": 1})
    assert found["mrr_at_1"] == 0
    assert found["mrr_at_5"] == found["mrr_at_100"] == 0.5
    assert (found["recall_at_5"], found["recall_at_10"]) == (1 / 3, 2 / 3)
    assert (found["precision_at_5"], found["precision_at_10"]) == (1 / 5, 2 / 10)
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    gain = 1 / math.log2(3) + 1 / math.log2(8)
    assert found["ndcg_at_10"] == pytest.approx(gain / ideal)
    assert found["map_at_10"] == pytest.approx((1 / 2 + 2 / 7) / 3)


@needs_trec
def test_grades_count_in_ndcg_alone() -> None:
    # By hand, as BEIR's published nDCG@10 is: gains are the grades.
    question = Question("q", "?", gold=("a", "b"), meta={"qrels": {"a": 1, "b": 2, "c": 0}})
    pieces = tuple(Piece(document, 0, 1, "x") for document in ("c", "a", "b"))
    found = retrieval_measures(question, Outcome(retrieved=pieces))
    assert found is not None
    gain = 1 / math.log2(3) + 2 / math.log2(4)
    assert found["ndcg_at_10"] == pytest.approx(gain / (2 + 1 / math.log2(3)))
    assert (found["recall_at_5"], found["mrr_at_5"], found["precision_at_1"]) == (1, 0.5, 0)


@needs_trec
def test_documents_that_a_question_excludes_are_not_ranked() -> None:
    question = Question("q", "?", gold=("b",), meta={"excluded_ids": ["a"]})
    pieces = tuple(Piece(document, 0, 1, "x") for document in ("a", "b"))
    found = retrieval_measures(question, Outcome(retrieved=pieces))
    assert found is not None
    assert found["mrr_at_1"] == 1


def test_a_hit_is_an_answer_in_one_of_the_first_passages() -> None:
    passages = ["no", "no", "It was The Ann.", "Ann", *["no"] * 20]
    found = hit_scores(passages, ["Bob", "Ann"])
    assert [found[f"hit_at_{k}"] for k in CUTS] == [0, 1, 1, 1, 1, 1]
    assert hit_scores(["Ann"], ["Ann"])["hit_at_1"] == 1
    late = hit_scores(["no"] * 10 + ["Ann"], ["Ann"])
    assert (late["hit_at_10"], late["hit_at_20"]) == (0, 1)
    assert set(hit_scores(["no"], ["Ann"]).values()) == set(hit_scores([], ["Ann"]).values()) == {0}


@needs_trec
@given(st.permutations([f"d{i}" for i in range(12)]), st.sets(st.integers(0, 20), min_size=1))
def test_recall_grows_with_the_cut_and_scores_stay_in_bounds(
    ranked: list[str], gold: set[int]
) -> None:
    found = retrieval_scores(ranked, {f"d{i}": 1 for i in gold})
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in found.values())
    for name in ("recall", "mrr", "map"):
        values = [found[f"{name}_at_{k}"] for k in CUTS]
        assert name == "map" or values == sorted(values)


# Citations


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
