"""The passage index on its own: search, scope, removal, reopening."""

from __future__ import annotations

import numpy as np
import pytest

from colligate.errors import LibraryDamaged
from colligate.library.bm25 import Terms
from colligate.library.edge import EdgeIndex, IndexEntry, Scope

DIMENSION = 8
ALL = Scope()


@pytest.fixture
def index(tmp_path):
    opened = EdgeIndex.create(tmp_path / "index", DIMENSION)
    yield opened
    opened.close()


@pytest.fixture
def filled(index):
    index.upsert(
        [
            entry(1, 10, 100, 101, axis=0),
            entry(2, 10, 100, axis=1),
            entry(3, 20, 102, axis=2),
            entry(4, 30, 100, 102, axis=0, lean=0.5),
        ]
    )
    return index


def unit(axis, lean=0.0):
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[axis] = 1.0
    vector[(axis + 1) % DIMENSION] = lean
    return vector / np.linalg.norm(vector)


def entry(passage, document, *terms, axis=0, lean=0.0):
    return IndexEntry(passage, document, unit(axis, lean), weigh(*terms))


def weigh(*terms):
    return Terms(list(terms), [1.0] * len(terms))


def numbers(found):
    return [scored.passage for scored in found]


def test_nearest_by_cosine(filled):
    found = filled.search_vector(unit(0), 2, ALL)
    assert [(scored.passage, scored.document) for scored in found] == [(1, 10), (4, 30)]
    assert found[0].score == pytest.approx(1.0)
    assert found[1].score == pytest.approx(float(unit(0) @ unit(0, 0.5)))


def test_matching_needs_a_shared_term(filled):
    assert sorted(numbers(filled.search_terms(weigh(102), 9, ALL))) == [3, 4]
    assert filled.search_terms(weigh(999), 9, ALL) == []
    assert filled.search_terms(weigh(), 9, ALL) == []


def test_a_rare_term_weighs_more_than_a_common_one(filled):
    assert numbers(filled.search_terms(weigh(100, 101), 9, ALL))[0] == 1
    common = filled.search_terms(weigh(100), 9, ALL)[0].score
    assert filled.search_terms(weigh(101), 9, ALL)[0].score > common


def test_scope(filled):
    assert numbers(filled.search_vector(unit(0), 9, Scope(within=[20]))) == [3]
    assert filled.search_vector(unit(0), 9, Scope(within=[])) == []
    assert 10 not in {s.document for s in filled.search_vector(unit(0), 9, Scope(without=[10]))}
    both = Scope(within=[10, 30], without=[10])
    assert numbers(filled.search_terms(weigh(100), 9, both)) == [4]


def test_upserting_a_passage_again_replaces_it(filled):
    filled.upsert([entry(1, 10, 555, axis=5)])
    assert filled.count() == 4
    assert numbers(filled.search_vector(unit(5), 1, ALL)) == [1]
    assert 1 not in numbers(filled.search_terms(weigh(100), 9, ALL))


def test_removing(filled):
    filled.remove([10, 77])
    assert filled.passages() == {3: 20, 4: 30}
    filled.remove_passages([3])
    filled.remove([])
    filled.remove_passages([])
    assert filled.passages() == {4: 30}
    assert filled.count() == 1
    assert numbers(filled.search_vector(unit(1), 9, ALL)) == [4]


def test_optimised_it_equals_an_index_that_never_had_the_removed(filled, tmp_path):
    filled.remove([20])
    filled.optimise()
    fresh = EdgeIndex.create(tmp_path / "fresh", DIMENSION)
    fresh.upsert([entry(1, 10, 100, 101), entry(2, 10, 100, axis=1)])
    fresh.upsert([entry(4, 30, 100, 102, lean=0.5)])
    assert filled.search_vector(unit(0), 9, ALL) == fresh.search_vector(unit(0), 9, ALL)
    # An index may have any order among equal scores.
    found, expected = (i.search_terms(weigh(100), 9, ALL) for i in (filled, fresh))
    assert {s.passage: s.score for s in found} == {s.passage: s.score for s in expected}
    assert filled.passages() == fresh.passages()
    fresh.close()


def test_it_is_the_same_when_opened_again(filled, tmp_path):
    before = filled.search_vector(unit(0), 9, ALL)
    filled.flush()
    filled.close()
    again = EdgeIndex.open(tmp_path / "index")
    assert again.search_vector(unit(0), 9, ALL) == before
    assert again.count() == 4
    again.close()


def test_all_passages_are_listed_however_many(index):
    index.upsert([entry(n, n // 7, n) for n in range(1, 25_001)])
    assert index.passages() == {n: n // 7 for n in range(1, 25_001)}


def test_words_alone(tmp_path):
    index = EdgeIndex.create(tmp_path / "words", None)
    index.upsert([IndexEntry(1, 1, None, weigh(5))])
    assert numbers(index.search_terms(weigh(5), 3, ALL)) == [1]
    index.close()
    index.close()


def test_a_folder_without_an_index(tmp_path):
    with pytest.raises(LibraryDamaged, match="verify --repair"):
        EdgeIndex.open(tmp_path)
