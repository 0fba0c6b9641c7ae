import numpy as np
import pytest

from colligate.strategies.dualrag.knowledge import ELSE, SIMILAR, link_names


def linked(asked, known, vectors=None):
    return [(link.name, link.how) for link in link_names(asked, known, vectors)]


@pytest.mark.parametrize(
    ("asked", "known"),
    [("the  beatles", "The Beatles"), ("Green (album)", "Green album"), ("ＮＡＴＯ", "nato")],
)
def test_the_same_words_are_the_same_entity_unless_linking_is_exact(asked, known):
    assert linked([asked], [known], {}) == [(known, "name")]
    assert linked([asked], [known]) == [(asked, "new")]


@pytest.mark.parametrize(
    ("asked", "known"), [("York", "New York"), ("wife of Steve Hillage", "Steve Hillage")]
)
def test_other_words_are_another_entity(asked, known):
    assert linked([asked], [known], {}) == [(asked, "new")]


def test_names_of_one_reply_are_linked_with_each_other_and_the_same_name_goes_first():
    assert linked(["Lyon"], ["lyon", "Lyon"], {}) == [("Lyon", "exact")]
    found = linked(["Lyon", "LYON", "Nice"], [], {})
    assert found == [("Lyon", "new"), ("Lyon", "name"), ("Nice", "new")]


def test_else_is_linked_with_nothing_and_nothing_with_it():
    assert linked(["Else", "else"], [ELSE, "or else"], {}) == [(ELSE, "new"), (ELSE, "new")]
    assert linked(["somebody else"], [ELSE], {}) == [("somebody else", "new")]


def at(cosine):
    return np.array([cosine, (1 - cosine**2) ** 0.5], np.float32)


def test_the_most_similar_name_is_linked_from_the_limit_on():
    vectors = {"a": at(1), "b": at(SIMILAR + 0.01), "c": at(SIMILAR + 0.02), "d": at(0.5)}
    assert linked(["a"], ["b", "c", "d"], vectors) == [("c", "similar")]
    assert linked(["a"], ["d"], vectors) == [("a", "new")]


def test_names_with_other_numbers_are_never_similar():
    same = {name: at(1) for name in ("revenue in 2019", "revenue in 2020")}
    assert linked(["revenue in 2019"], ["revenue in 2020"], same) == [("revenue in 2019", "new")]
