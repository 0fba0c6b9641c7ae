from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.bench.metrics.evidence import CUTS, hit_scores, retrieval_measures, retrieval_scores
from colligate.bench.outcome import Outcome, Piece
from colligate.bench.question import Question
from colligate.errors import ColligateError

pytest.importorskip("pytrec_eval")


def test_the_example_of_pytrec_eval() -> None:
    # Its README: documents 2 and 3 are relevant; ranked 1, 3, 2 it gives these.
    found = retrieval_scores(["d1", "d3", "d2"], {"d2": 1, "d3": 1})
    assert found["map_at_100"] == pytest.approx(0.5833333333333333)
    assert found["ndcg_at_100"] == pytest.approx(0.6934264036172708)
    assert retrieval_scores(["d3", "d1", "d2"], {"d2": 1})["map_at_100"] == pytest.approx(1 / 3)
    assert retrieval_scores(["d3", "d1", "d2"], {"d2": 1})["ndcg_at_100"] == pytest.approx(0.5)


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


def test_grades_count_in_ndcg_alone() -> None:
    # By hand, as BEIR's published nDCG@10 is: gains are the grades.
    question = Question("q", "?", gold=("a", "b"), meta={"qrels": {"a": 1, "b": 2, "c": 0}})
    pieces = tuple(Piece(document, 0, 1, "x") for document in ("c", "a", "b"))
    found = retrieval_measures(question, Outcome(retrieved=pieces))
    assert found is not None
    gain = 1 / math.log2(3) + 2 / math.log2(4)
    assert found["ndcg_at_10"] == pytest.approx(gain / (2 + 1 / math.log2(3)))
    assert (found["recall_at_5"], found["mrr_at_5"], found["precision_at_1"]) == (1, 0.5, 0)


def test_hits_are_not_measured_of_passages_that_lost_their_texts() -> None:
    question = Question("q", "?", ("Ann",), gold=("a",))
    of_a_row = Outcome(retrieved=(Piece("a", 0, 9, ""),))
    with pytest.raises(ColligateError, match="without their texts"):
        retrieval_measures(question, of_a_row)


@pytest.mark.parametrize("rank", [1, 5, 10, 20, 50, 100])
def test_a_first_gold_document_at_a_cut_counts_there(rank: int) -> None:
    ranked = [f"x{i}" for i in range(rank - 1)] + ["gold"] + [f"y{i}" for i in range(30)]
    found = retrieval_scores(ranked, {"gold": 1})
    assert found[f"mrr_at_{rank}"] == pytest.approx(1 / rank)
    assert all(found[f"mrr_at_{k}"] == found[f"recall_at_{k}"] == 0 for k in CUTS if k < rank)


def test_a_hit_is_an_answer_in_one_of_the_first_passages() -> None:
    passages = ["no", "no", "It was The Ann.", "Ann", *["no"] * 20]
    found = hit_scores(passages, ["Bob", "Ann"])
    assert [found[f"hit_at_{k}"] for k in CUTS] == [0, 1, 1, 1, 1, 1]
    assert hit_scores(["Ann"], ["Ann"])["hit_at_1"] == 1
    late = hit_scores(["no"] * 10 + ["Ann"], ["Ann"])
    assert (late["hit_at_10"], late["hit_at_20"]) == (0, 1)
    assert set(hit_scores(["no"], ["Ann"]).values()) == set(hit_scores([], ["Ann"]).values()) == {0}


def test_nothing_retrieved_is_nothing_found_under_the_same_names() -> None:
    empty = retrieval_scores([], {"a": 1})
    assert set(empty.values()) == {0}
    assert set(empty) == set(retrieval_scores(["a"], {"a": 1}))


@given(st.permutations([f"d{i}" for i in range(12)]), st.sets(st.integers(0, 20), min_size=1))
def test_recall_grows_with_the_cut_and_scores_stay_in_bounds(
    ranked: list[str], gold: set[int]
) -> None:
    found = retrieval_scores(ranked, {f"d{i}": 1 for i in gold})
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in found.values())
    for name in ("recall", "mrr", "map"):
        values = [found[f"{name}_at_{k}"] for k in CUTS]
        assert name == "map" or values == sorted(values)
