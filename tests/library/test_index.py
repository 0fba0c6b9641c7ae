"""What `PassageIndex` promises; any implementation runs through these."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from colligate.errors import LibraryDamaged
from colligate.library.bm25 import Terms
from colligate.library.edge import EdgeIndex
from colligate.library.index import IndexEntry, PassageIndex, Scope

DIMENSION = 8
ALL = Scope()


@pytest.fixture(params=[EdgeIndex])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], PassageIndex]]:
    """A function that closes the index and opens it again."""
    opened: list[PassageIndex] = [request.param.create(tmp_path / "index", DIMENSION)]

    def again() -> PassageIndex:
        opened[-1].close()
        opened.append(request.param.open(tmp_path / "index"))
        return opened[-1]

    again.first = opened[0]  # type: ignore[attr-defined]
    yield again
    opened[-1].close()


@pytest.fixture
def index(reopen: Callable[[], PassageIndex]) -> PassageIndex:
    return reopen.first  # type: ignore[attr-defined, no-any-return]


def unit(axis: int, lean: float = 0.0) -> NDArray[np.float32]:
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[axis] = 1.0
    vector[(axis + 1) % DIMENSION] = lean
    return vector / np.linalg.norm(vector)


def entry(passage: int, document: int, *terms: int, axis: int = 0, lean: float = 0.0) -> IndexEntry:
    return IndexEntry(passage, document, unit(axis, lean), Terms(list(terms), [1.0] * len(terms)))


@pytest.fixture
def filled(index: PassageIndex) -> PassageIndex:
    index.upsert(
        [
            entry(1, 10, 100, 101, axis=0),
            entry(2, 10, 100, axis=1),
            entry(3, 20, 102, axis=2),
            entry(4, 30, 100, 102, axis=0, lean=0.5),
        ]
    )
    return index


def numbers(found: list[object]) -> list[int]:
    return [scored.passage for scored in found]  # type: ignore[attr-defined]


def test_nearest_by_cosine(filled: PassageIndex) -> None:
    found = filled.nearest(unit(0), 2, ALL)
    assert [(scored.passage, scored.document) for scored in found] == [(1, 10), (4, 30)]
    assert found[0].score == pytest.approx(1.0)
    assert found[1].score == pytest.approx(float(unit(0) @ unit(0, 0.5)))


def test_matching_needs_a_shared_term(filled: PassageIndex) -> None:
    assert sorted(numbers(filled.matching(Terms([102], [1.0]), 9, ALL))) == [3, 4]
    assert filled.matching(Terms([999], [1.0]), 9, ALL) == []
    assert filled.matching(Terms([], []), 9, ALL) == []


def test_a_rare_term_weighs_more_than_a_common_one(filled: PassageIndex) -> None:
    assert numbers(filled.matching(Terms([100, 101], [1.0, 1.0]), 9, ALL))[0] == 1
    common = filled.matching(Terms([100], [1.0]), 9, ALL)[0].score
    assert filled.matching(Terms([101], [1.0]), 9, ALL)[0].score > common


def test_scope(filled: PassageIndex) -> None:
    assert numbers(filled.nearest(unit(0), 9, Scope(within=[20]))) == [3]
    assert filled.nearest(unit(0), 9, Scope(within=[])) == []
    assert 10 not in {s.document for s in filled.nearest(unit(0), 9, Scope(without=[10]))}
    both = Scope(within=[10, 30], without=[10])
    assert numbers(filled.matching(Terms([100], [1.0]), 9, both)) == [4]


def test_upserting_a_passage_again_replaces_it(filled: PassageIndex) -> None:
    filled.upsert([entry(1, 10, 555, axis=5)])
    assert filled.count() == 4
    assert numbers(filled.nearest(unit(5), 1, ALL)) == [1]
    assert 1 not in numbers(filled.matching(Terms([100], [1.0]), 9, ALL))


def test_removing(filled: PassageIndex) -> None:
    filled.remove([10, 77])
    assert filled.passages() == {3: 20, 4: 30}
    filled.remove_passages([3])
    filled.remove([])
    filled.remove_passages([])
    assert filled.passages() == {4: 30}
    assert filled.count() == 1
    assert numbers(filled.nearest(unit(1), 9, ALL)) == [4]


def test_optimised_it_is_as_if_the_removed_had_never_been(
    filled: PassageIndex, tmp_path: Path
) -> None:
    filled.remove([20])
    filled.optimise()
    fresh = type(filled).create(tmp_path / "fresh", DIMENSION)  # type: ignore[attr-defined]
    fresh.upsert([entry(1, 10, 100, 101), entry(2, 10, 100, axis=1)])
    fresh.upsert([entry(4, 30, 100, 102, lean=0.5)])
    assert filled.nearest(unit(0), 9, ALL) == fresh.nearest(unit(0), 9, ALL)
    # Among equal scores an index may have any order.
    found, expected = (i.matching(Terms([100], [1.0]), 9, ALL) for i in (filled, fresh))
    assert {s.passage: s.score for s in found} == {s.passage: s.score for s in expected}
    assert filled.passages() == fresh.passages()
    fresh.close()


def test_it_is_the_same_when_opened_again(
    filled: PassageIndex, reopen: Callable[[], PassageIndex]
) -> None:
    before = filled.nearest(unit(0), 9, ALL)
    filled.flush()
    again = reopen()
    assert again.nearest(unit(0), 9, ALL) == before
    assert again.count() == 4


def test_all_passages_are_listed_however_many(index: PassageIndex) -> None:
    index.upsert([entry(n, n // 7, n) for n in range(1, 25_001)])
    assert index.passages() == {n: n // 7 for n in range(1, 25_001)}


def test_words_alone(tmp_path: Path) -> None:
    index = EdgeIndex.create(tmp_path / "words", None)
    index.upsert([IndexEntry(1, 1, None, Terms([5], [1.0]))])
    assert numbers(index.matching(Terms([5], [1.0]), 3, ALL)) == [1]
    index.close()
    index.close()


def test_a_folder_without_an_index(tmp_path: Path) -> None:
    with pytest.raises(LibraryDamaged, match="verify --repair"):
        EdgeIndex.open(tmp_path)
