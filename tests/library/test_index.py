"""The promises of `PassageIndex`, kept by each implementation, and the passages it gets."""

from __future__ import annotations

import numpy as np
import pytest

from colligate.documents import Document
from colligate.documents.chunking import Structural
from colligate.documents.markdown import markdown_tree
from colligate.errors import LibraryDamaged
from colligate.library.bm25 import Terms
from colligate.library.edge import EdgeIndex
from colligate.library.index import IndexEntry, Scope, cut_passages

DIMENSION = 8
ALL = Scope()


@pytest.fixture(params=[EdgeIndex])
def kind(request):
    return request.param


@pytest.fixture
def index(kind, tmp_path):
    opened = kind.create(tmp_path / "index", DIMENSION)
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
    found = filled.nearest(unit(0), 2, ALL)
    assert [(scored.passage, scored.document) for scored in found] == [(1, 10), (4, 30)]
    assert found[0].score == pytest.approx(1.0)
    assert found[1].score == pytest.approx(float(unit(0) @ unit(0, 0.5)))


def test_matching_needs_a_shared_term(filled):
    assert sorted(numbers(filled.matching(weigh(102), 9, ALL))) == [3, 4]
    assert filled.matching(weigh(999), 9, ALL) == []
    assert filled.matching(weigh(), 9, ALL) == []


def test_a_rare_term_weighs_more_than_a_common_one(filled):
    assert numbers(filled.matching(weigh(100, 101), 9, ALL))[0] == 1
    common = filled.matching(weigh(100), 9, ALL)[0].score
    assert filled.matching(weigh(101), 9, ALL)[0].score > common


def test_scope(filled):
    assert numbers(filled.nearest(unit(0), 9, Scope(within=[20]))) == [3]
    assert filled.nearest(unit(0), 9, Scope(within=[])) == []
    assert 10 not in {s.document for s in filled.nearest(unit(0), 9, Scope(without=[10]))}
    both = Scope(within=[10, 30], without=[10])
    assert numbers(filled.matching(weigh(100), 9, both)) == [4]


def test_upserting_a_passage_again_replaces_it(filled):
    filled.upsert([entry(1, 10, 555, axis=5)])
    assert filled.count() == 4
    assert numbers(filled.nearest(unit(5), 1, ALL)) == [1]
    assert 1 not in numbers(filled.matching(weigh(100), 9, ALL))


def test_removing(filled):
    filled.remove([10, 77])
    assert filled.passages() == {3: 20, 4: 30}
    filled.remove_passages([3])
    filled.remove([])
    filled.remove_passages([])
    assert filled.passages() == {4: 30}
    assert filled.count() == 1
    assert numbers(filled.nearest(unit(1), 9, ALL)) == [4]


def test_optimised_it_equals_an_index_that_never_had_the_removed(filled, kind, tmp_path):
    filled.remove([20])
    filled.optimise()
    fresh = kind.create(tmp_path / "fresh", DIMENSION)
    fresh.upsert([entry(1, 10, 100, 101), entry(2, 10, 100, axis=1)])
    fresh.upsert([entry(4, 30, 100, 102, lean=0.5)])
    assert filled.nearest(unit(0), 9, ALL) == fresh.nearest(unit(0), 9, ALL)
    # An index may have any order among equal scores.
    found, expected = (i.matching(weigh(100), 9, ALL) for i in (filled, fresh))
    assert {s.passage: s.score for s in found} == {s.passage: s.score for s in expected}
    assert filled.passages() == fresh.passages()
    fresh.close()


def test_it_is_the_same_when_opened_again(filled, kind, tmp_path):
    before = filled.nearest(unit(0), 9, ALL)
    filled.flush()
    filled.close()
    again = kind.open(tmp_path / "index")
    assert again.nearest(unit(0), 9, ALL) == before
    assert again.count() == 4
    again.close()


def test_all_passages_are_listed_however_many(index):
    index.upsert([entry(n, n // 7, n) for n in range(1, 25_001)])
    assert index.passages() == {n: n // 7 for n in range(1, 25_001)}


def test_words_alone(kind, tmp_path):
    index = kind.create(tmp_path / "words", None)
    index.upsert([IndexEntry(1, 1, None, weigh(5))])
    assert numbers(index.matching(weigh(5), 3, ALL)) == [1]
    index.close()
    index.close()


def test_a_folder_without_an_index(kind, tmp_path):
    with pytest.raises(LibraryDamaged, match="verify --repair"):
        kind.open(tmp_path)


TEXT = """# Licence

## 3. Responsibilities

### 3.1. Source form

All distribution is under these terms.

### 3.2. Reserved

## 4. Notices
"""


def test_a_bare_heading_above_sub_sections_is_not_a_passage():
    document = Document("a", "Licence", TEXT, markdown_tree(TEXT, "a"))
    found = [document.slice(span) for span in cut_passages(document, Structural())]
    assert found == [
        "### 3.1. Source form\n\nAll distribution is under these terms.",
        "### 3.2. Reserved",
        "## 4. Notices",
    ]
