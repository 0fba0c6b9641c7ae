"""The passage index on its own: search, scope, removal, reopening."""

from __future__ import annotations

import numpy as np
import pytest

from colligate.documents import Document, flat_tree
from colligate.errors import EmbedderMismatch, LibraryDamaged
from colligate.library.bm25 import Terms
from colligate.library.catalogue import Catalogue
from colligate.library.passages import PassageIndex, VectorFile, Vectors
from colligate.library.protocols import FileRecord, IndexEntry, Scope
from colligate.library.schema import Database

DIMENSION = 8
ALL = Scope()


@pytest.fixture
def catalogue(tmp_path):
    """A catalogue of documents with the numbers 1 to 30."""
    opened = Catalogue(Database(tmp_path / "catalogue.sqlite"))
    for n in range(30):
        id_, text = str(n), f"Text {n}."
        document = Document(id_, id_, text, flat_tree(id_, len(text)))
        opened.store([(FileRecord(tmp_path / id_, 0, 0, 0, id_), [(document, [])])])
    yield opened
    opened.close()


@pytest.fixture
def open_index(catalogue, tmp_path):
    """`open_index()` is the passage index of the catalogue, as another process would open it."""
    file = tmp_path / "vectors-8.f32"
    file.touch()
    return lambda: PassageIndex(catalogue.database, VectorFile(file, DIMENSION))


@pytest.fixture
def index(open_index):
    opened = open_index()
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


def test_removing(filled, catalogue):
    catalogue.remove([10])
    filled.remove([10, 20, 77])
    assert filled.passages() == {3: 20, 4: 30}  # 20 was added again by another process
    filled.remove_passages([3])
    filled.remove([])
    filled.remove_passages([])
    assert filled.passages() == {4: 30}
    assert filled.count() == 1
    assert numbers(filled.search_vector(unit(1), 9, ALL)) == [4]
    assert numbers(filled.search_terms(weigh(100, 102), 9, ALL)) == [4]


def test_passages_of_a_document_that_is_gone_are_not_written(filled, catalogue):
    catalogue.remove([30])
    catalogue.purge([20])
    filled.upsert([entry(9, 30, 7), entry(10, 77, 7), entry(11, 10, 7)])
    assert filled.passages() == {1: 10, 2: 10, 3: 20, 4: 30, 11: 10}


def test_passages_of_another_embedder_are_not_written(filled, catalogue):
    catalogue.set_meta(embedder="other")
    with pytest.raises(EmbedderMismatch, match="another embedder"):
        filled.upsert([entry(9, 10, 7)])


@pytest.mark.parametrize("blocks", [1, 900])  # passages in blocks of their own
def test_optimised_it_equals_an_index_that_never_had_the_removed(filled, catalogue, blocks):
    before = filled.search_vector(unit(0), 9, ALL), filled.search_terms(weigh(100), 9, ALL)
    more = [entry(100 + n * blocks, 20, 100, 102) for n in range(20)]
    filled.upsert(more)
    assert filled.search_terms(weigh(100), 99, ALL) != before[1]
    filled.remove_passages([each.passage for each in more])
    filled.optimise()
    assert (
        filled.search_vector(unit(0), 9, ALL),
        filled.search_terms(weigh(100), 9, ALL),
    ) == before


def test_another_process_sees_each_change(filled, open_index):
    other = open_index()
    found = other.search_vector(unit(0), 9, ALL)
    assert found == filled.search_vector(unit(0), 9, ALL)
    filled.upsert([entry(n, 20, 100, axis=5) for n in range(100, 200)])
    assert other.count() == 104
    assert numbers(other.search_vector(unit(5), 3, Scope(within=[20]))) != [3]
    filled.remove_passages(range(100, 200))
    filled.optimise()
    assert other.search_vector(unit(0), 9, ALL) == found
    other.close()


def test_what_a_killed_process_left_in_the_file_is_replaced(filled, catalogue, monkeypatch):
    def die(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("colligate.library.passages._write_block", die)
        with pytest.raises(KeyboardInterrupt):
            filled.upsert([entry(9, 10, 300, axis=6)])
    (file,) = catalogue.database._file.parent.glob("*.f32")
    with file.open("ab") as rows:
        rows.write(b"half a row")
    assert filled.search_terms(weigh(300), 9, ALL) == []
    filled.upsert([entry(9, 10, 300, axis=6), entry(10, 10, 300)])
    assert sorted(filled.passages()) == [1, 2, 3, 4, 9, 10]
    assert numbers(filled.search_vector(unit(6), 1, ALL)) == [9]
    assert sorted(numbers(filled.search_terms(weigh(300), 9, ALL))) == [9, 10]


def test_all_is_returned_as_it_was_given(filled):
    (first, second, _) = filled.entries([20, 10])
    assert (first.passage, first.terms) == (1, weigh(100, 101))
    assert (second.vector == unit(1)).all()
    filled.upsert([entry(2, 10, 103)])
    assert [each.terms for each in filled.entries([10])] == [weigh(100, 101), weigh(103)]


def test_all_passages_are_listed_however_many(index):
    index.upsert([entry(n, n // 1000 + 1, n) for n in range(1, 25_001)])
    assert index.passages() == {n: n // 1000 + 1 for n in range(1, 25_001)}


def test_words_alone(catalogue):
    index = PassageIndex(catalogue.database, Vectors(0))
    index.upsert([IndexEntry(1, 1, None, weigh(5))])
    assert numbers(index.search_terms(weigh(5), 3, ALL)) == [1]
    assert [each.vector for each in index.entries([1])] == [None]
    index.close()
    index.close()


def test_without_its_file(index, tmp_path):
    next(tmp_path.glob("*.f32")).unlink()
    with pytest.raises(LibraryDamaged, match="verify --repair"):
        index.search_vector(unit(0), 9, ALL)
