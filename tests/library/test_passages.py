"""The passage index on its own: weights of terms, and what is left of removed passages."""

import numpy as np
import pytest

from colligate.documents import Document, flat_tree
from colligate.library.bm25 import Terms
from colligate.library.catalogue import Catalogue
from colligate.library.passages import PassageIndex, VectorFile
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
def index(catalogue, tmp_path):
    file = tmp_path / "vectors-8.f32"
    file.touch()
    opened = PassageIndex(catalogue.database, VectorFile(file, DIMENSION))
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


def test_a_rare_term_weighs_more_than_a_common_one(filled):
    assert numbers(filled.search_terms(weigh(100, 101), 9, ALL))[0] == 1
    common = filled.search_terms(weigh(100), 9, ALL)[0].score
    assert filled.search_terms(weigh(101), 9, ALL)[0].score > common


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
