import numpy as np
import pytest

from colligate.strategies.dualrag.knowledge import ELSE, link_names


def linked(asked, known, **options):
    return [(link.name, link.how) for link in link_names(asked, known, **options)]


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("the  beatles", "The Beatles"),
        ("Population of France", "France population"),
        ("Obama's birthplace", "birthplace of Obama"),
        ("Green (album)", "Green album"),
        ("ＮＡＴＯ", "nato"),
    ],
)
def test_the_same_words_are_the_same_entity(asked, known):
    assert linked([asked], [known]) == [(known, "name")]
    assert linked([asked], [known], linking="exact") == [(asked, "new")]


@pytest.mark.parametrize(
    ("asked", "known"),
    [
        ("The Who", "It"),
        ("York", "New York"),
        ("Elizabeth II", "Elizabeth I"),
        ("wife of Steve Hillage", "Steve Hillage"),
        ("the", "a"),
    ],
)
def test_other_words_are_another_entity(asked, known):
    assert linked([asked], [known]) == [(asked, "new")]


def test_a_name_that_is_the_same_goes_before_one_of_the_same_words():
    assert linked(["Lyon"], ["lyon", "Lyon"]) == [("Lyon", "exact")]


def test_names_of_one_reply_are_linked_with_each_other():
    assert linked(["Lyon", "LYON", "Nice"], []) == [
        ("Lyon", "new"),
        ("Lyon", "name"),
        ("Nice", "new"),
    ]


def test_else_is_linked_with_nothing_and_nothing_with_it():
    assert linked(["Else", "else"], [ELSE, "or else"]) == [(ELSE, "new"), (ELSE, "new")]
    assert linked(["somebody else"], [ELSE]) == [("somebody else", "new")]


def near(*names):
    """Vectors that are all alike but a little."""
    rows = np.eye(len(names), dtype=np.float32) * 0.1 + 1
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return dict(zip(names, rows, strict=True))


def test_similar_names_are_linked_from_the_threshold_on():
    vectors = near("President Obama", "Barack Obama")
    cosine = float(vectors["President Obama"] @ vectors["Barack Obama"])
    for threshold, how in ((cosine - 0.001, "similar"), (cosine + 0.001, "new")):
        (link,) = link_names(
            ["President Obama"],
            ["Barack Obama"],
            linking="similar",
            vectors=vectors,
            threshold=threshold,
        )
        assert link.how == how
        assert (link.similarity is None) == (how == "new")


@pytest.mark.parametrize(
    ("asked", "known"), [("revenue in 2019", "revenue in 2020"), ("Elizabeth II", "Elizabeth I")]
)
def test_names_with_other_numbers_are_never_similar(asked, known):
    found = linked([asked], [known], linking="similar", vectors=near(asked, known), threshold=0.5)
    assert found == [(asked, "new")]


def test_the_most_similar_name_is_taken():
    vectors = {
        "a": np.array([1, 0], np.float32),
        "b": np.array([0.6, 0.8], np.float32),
        "c": np.array([0.8, 0.6], np.float32),
    }
    found = linked(["c"], ["a", "b"], linking="similar", vectors=vectors, threshold=0.7)
    assert found == [("b", "similar")]
