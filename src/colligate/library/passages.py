"""The passage index: words in the catalogue's database, vectors in a file that searches map.

Both hold numbers only; the text stays in the catalogue. The catalogue's write transaction guards
both, and a document counts as indexed only once all its passages are in them: what a process that
was killed has left in the file is replaced or zeroed by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from colligate.errors import EmbedderMismatch, LibraryDamaged, LibraryError
from colligate.library.bm25 import Terms
from colligate.library.protocols import IndexEntry, Scope, ScoredPassage
from colligate.library.schema import Database, DocumentState
from colligate.private import make_private_file

Integers = NDArray[np.integer[Any]]
Floats = NDArray[np.float32]
Words = NDArray[np.void]

# Passages of consecutive numbers have their words together, this many in a block.
_BLOCK = 2048
_POSTING = np.dtype([("place", "<u2"), ("weight", "<f4")])
_WORD = np.dtype([("term", "<u4"), ("place", "<u2"), ("weight", "<f4")])
_FEW = 1 / 4  # share of passages that are searched alone
_SPARSE = 1 / 8  # share of removed rows from which the file of vectors is written anew


class PassageIndex:
    """A `PassageStore` in a database and a file. Calls block and may come from any thread."""

    def __init__(self, database: Database, vectors: Vectors) -> None:
        self._database = database
        self._vectors = vectors
        self._embedder = self._find_embedder()

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        """Add passages, or replace those with the same number; not those of removed documents."""
        with self._database.transaction():
            if self._find_embedder() != self._embedder:
                why = "another process indexes it with another embedder"
                raise EmbedderMismatch("cannot index into the library", why, "index again")
            kept = self._list_kept({entry.document for entry in entries})
            entries = sorted((e for e in entries if e.document in kept), key=lambda e: e.passage)
            stored = self._vectors.read().numbers
            again = stored[_is_in(stored, [entry.passage for entry in entries])]
            _erase(self._database, self._vectors, again)
            self._vectors.append(entries)
            for block, group in groupby(entries, lambda entry: entry.passage // _BLOCK):
                _write_block(self._database, block, list(group))

    def search_vector(self, vector: Floats, limit: int, scope: Scope) -> list[ScoredPassage]:
        rows = self._vectors.read()
        if scope.within is not None:
            chosen = np.flatnonzero(_is_in(rows.documents, scope.within))
            if len(chosen) < _FEW * len(rows.numbers):  # more are faster compared where they are
                rows = _Rows(rows.table[chosen])
        # Not by BLAS: its threads wait for each other where other processes use the cores.
        scores = np.einsum("ij,j->i", rows.vectors, vector)
        return take_best(scores, rows.numbers, rows.documents, limit, scope)

    def search_terms(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        """Return the passages that share a term, by BM25 score as Qdrant counts it, best first."""
        if not (found := list(self._database.listed(_FIND_WORDS, terms.ids))):
            return []
        blocks, of_row = np.unique([row[0] for row in found], return_inverse=True)
        ids, term_of_row = np.unique([row[1] for row in found], return_inverse=True)
        postings = np.frombuffer(b"".join(row[2] for row in found), _POSTING)
        lengths = np.array([len(row[2]) // _POSTING.itemsize for row in found])
        rows = self._vectors.read()
        places = np.repeat(of_row * _BLOCK, lengths) + postings["place"]
        # Every passage that is in the file has its place among the scores, or a score of 0.
        in_file = rows.numbers // _BLOCK
        order = np.full(max(blocks[-1], in_file.max(initial=0)) + 1, len(blocks))
        order[blocks] = np.arange(len(blocks))
        place_of_row = order[in_file] * _BLOCK + rows.numbers % _BLOCK
        counts, total = np.bincount(term_of_row, lengths), np.count_nonzero(rows.numbers)
        if scope.among is not None:
            counted = (rows.numbers > 0) & _is_in(rows.documents, scope.among)
            weight = np.zeros((len(blocks) + 1) * _BLOCK)
            weight[place_of_row[counted]] = 1
            counts = np.bincount(np.repeat(term_of_row, lengths), weight[places])
            total = np.count_nonzero(counted)
        total = max(total, counts.max())  # some may have gone meanwhile
        given = dict(zip(terms.ids, terms.weights, strict=True))
        idf = np.log1p((total - counts + 0.5) / (counts + 0.5)) * [given[each] for each in ids]
        weights = np.repeat(idf[term_of_row], lengths) * postings["weight"]
        scores = np.bincount(places, weights, len(blocks) * _BLOCK)
        scores = np.append(scores, np.zeros(_BLOCK))  # of the blocks without any of the terms
        own = scores[place_of_row].astype(np.float32)
        return take_best(own, np.where(own > 0, rows.numbers, 0), rows.documents, limit, scope)

    def remove(self, documents: Collection[int]) -> None:
        """Erase the passages of these documents, but for those that were added again meanwhile."""
        with self._database.transaction():
            gone = set(documents) - self._list_kept(documents)
            query = "SELECT number FROM passages WHERE document IN (%s)"
            stored = {number for (number,) in self._database.listed(query, list(gone))}
            rows = self._vectors.read()
            stored.update(rows.numbers[_is_in(rows.documents, gone)].tolist())
            _erase(self._database, self._vectors, stored)

    def remove_passages(self, passages: Collection[int]) -> None:
        with self._database.transaction():
            _erase(self._database, self._vectors, passages)

    def passages(self) -> dict[int, int]:
        rows = self._vectors.read()
        live = rows.numbers > 0
        return dict(zip(rows.numbers[live].tolist(), rows.documents[live].tolist(), strict=True))

    def count(self) -> int:
        return int(np.count_nonzero(self._vectors.read().numbers))

    def optimise(self, *, erase: bool = True) -> None:
        """Give back the space of removed vectors; they are erased already."""
        with self._database.transaction():
            self._vectors.compact()

    def close(self) -> None:
        """Unmap the vectors. Safe to call twice."""
        self._vectors.close()

    def _find_embedder(self) -> str | None:
        found = self._database.rows("SELECT value FROM meta WHERE key = 'embedder'")
        return str(found[0][0]) if found else None

    def _list_kept(self, documents: Collection[int]) -> set[int]:
        """Return those of these documents that are stored and not being removed."""
        query = "SELECT number FROM documents WHERE state != ? AND number IN (%s)"
        found = self._database.listed(query, list(documents), DocumentState.REMOVING)
        return {number for (number,) in found}


# The blocks are listed by jumping from one to the next: there are few, with many rows each.
_FIND_WORDS = """
WITH RECURSIVE blocks (block) AS (
    SELECT min(block) FROM words
    UNION ALL
    SELECT (SELECT min(words.block) FROM words WHERE words.block > blocks.block) FROM blocks
    WHERE blocks.block IS NOT NULL
)
SELECT words.block, term, postings FROM blocks CROSS JOIN words
WHERE words.block = blocks.block AND term IN (%s)
"""


def take_best(
    scores: Floats, numbers: Integers, documents: Integers, limit: int, scope: Scope
) -> list[ScoredPassage]:
    """Return the passages with the best scores; those with the number 0 are none."""
    keep = numbers > 0
    if scope.within is not None:
        keep &= _is_in(documents, scope.within)
    if scope.without:
        keep &= ~_is_in(documents, scope.without)
    found = np.flatnonzero(keep)
    if len(found) > limit:
        found = found[np.argpartition(-scores[found], limit - 1)[:limit]]
    found = found[np.argsort(-scores[found], kind="stable")]
    columns = (each[found].tolist() for each in (numbers, documents, scores))
    return [ScoredPassage(*row) for row in zip(*columns, strict=True)]


def _is_in(numbers: Integers, chosen: Collection[int]) -> NDArray[np.bool_]:
    return np.isin(numbers, np.fromiter(chosen, numbers.dtype, len(chosen)))


def _unpack(rows: Iterable[tuple[int, bytes]]) -> Words:
    """Return the words in rows of a term and its postings."""
    rows = list(rows)
    found = np.frombuffer(b"".join(postings for _, postings in rows), _POSTING)
    lengths = [len(postings) // _POSTING.itemsize for _, postings in rows]
    words = np.empty(len(found), _WORD)
    terms = np.array([term for term, _ in rows], np.uint32)
    words["term"] = np.repeat(terms, np.array(lengths, np.int64))
    words["place"], words["weight"] = found["place"], found["weight"]
    return words


def _write_block(database: Database, block: int, entries: Sequence[IndexEntry]) -> None:
    """Add passages to a block; a killed process may have left their words, which are the same."""
    lengths = [len(entry.terms.ids) for entry in entries]
    new = np.empty(sum(lengths), _WORD)
    new["term"] = [id_ for entry in entries for id_ in entry.terms.ids]
    new["place"] = np.repeat([entry.passage % _BLOCK for entry in entries], lengths)
    new["weight"] = [weight for entry in entries for weight in entry.terms.weights]
    query = "SELECT term, postings FROM words WHERE block = ? AND term IN (%s)"
    stored = _unpack(database.listed(query, np.unique(new["term"]).tolist(), block))
    kept = stored[~np.isin(stored["place"], [entry.passage % _BLOCK for entry in entries])]
    _write_words(database, block, np.concatenate([kept, new]))


def _erase_block(database: Database, block: int, places: Collection[int]) -> None:
    """Erase passages from a block."""
    query = "SELECT term, postings FROM words WHERE block = ?"
    words = _unpack(database.rows(query, block))
    gone = np.isin(words["place"], list(places))
    changed = np.unique(words["term"][gone])
    rows = [(block, term) for term in changed.tolist()]
    database.run_all("DELETE FROM words WHERE block = ? AND term = ?", rows)
    _write_words(database, block, words[~gone & np.isin(words["term"], changed)])


def _write_words(database: Database, block: int, words: Words) -> None:
    words = words[np.lexsort((words["place"], words["term"]))]
    terms, starts = np.unique(words["term"], return_index=True)
    postings = np.empty(len(words), _POSTING)
    postings["place"], postings["weight"] = words["place"], words["weight"]
    data, size = postings.tobytes(), _POSTING.itemsize
    bounds = pairwise([*starts.tolist(), len(words)])
    rows = (
        (block, term, data[start * size : end * size])
        for term, (start, end) in zip(terms.tolist(), bounds, strict=True)
    )
    database.run_all("INSERT OR REPLACE INTO words (block, term, postings) VALUES (?, ?, ?)", rows)


def _erase(database: Database, vectors: Vectors, passages: Iterable[int]) -> None:
    """Erase passages from the file of vectors and from their blocks."""
    numbers = sorted(map(int, passages))
    vectors.erase(numbers)
    for block, group in groupby(numbers, lambda number: number // _BLOCK):
        _erase_block(database, block, [number % _BLOCK for number in group])


def name_vectors(folder: Path, dimension: int) -> Path:
    """Return the file of a library's vectors of this length."""
    return folder / f"vectors-{dimension}.f32"


def list_vectors(folder: Path) -> list[Path]:
    """Return the files of a library's vectors, of any length."""
    return sorted(folder.glob("vectors-*.f32"))


class _Rows:
    """Rows of a passage's number, its document's, and its vector; a removed row is all zeros."""

    def __init__(self, table: Floats) -> None:
        self.table = table
        numbers = table.view(np.uint32)
        self.numbers, self.documents = numbers[:, 0].copy(), numbers[:, 1].copy()
        self.vectors = table[:, 2:]


class Vectors:
    """The rows of a small index, in memory."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension  # of the vectors; 0 if passages are found by words alone
        self._table = self._make_table(0)

    def read(self) -> _Rows:
        """Return all rows as they are now."""
        return _Rows(self._table)

    def append(self, entries: Sequence[IndexEntry]) -> None:
        """Add rows; return once they are kept."""
        self._table = np.concatenate([self._table, self._pack(entries)])

    def erase(self, passages: Collection[int]) -> None:
        """Write zeros over the rows of these passages."""
        self._table[_is_in(self.read().numbers, passages)] = 0

    def compact(self) -> None:
        """Leave out the empty rows, once there are many."""

    def close(self) -> None:
        """Free the rows. Safe to call twice."""
        self._table = self._make_table(0)

    def _make_table(self, rows: int) -> Floats:
        return np.zeros((rows, 2 + self.dimension), np.float32)

    def _pack(self, entries: Sequence[IndexEntry]) -> Floats:
        rows = self._make_table(len(entries))
        numbers = rows.view(np.uint32)
        numbers[:, 0] = [entry.passage for entry in entries]
        numbers[:, 1] = [entry.document for entry in entries]
        if self.dimension:
            rows[:, 2:] = [entry.vector for entry in entries]
        return rows


class VectorFile(Vectors):
    """The rows of a library, in a file.

    Rows are only ever added or zeroed, and the file is replaced as a whole, so that a search in
    another process has each passage's own vector. One process writes at a time.
    """

    def __init__(self, file: Path, dimension: int) -> None:
        super().__init__(dimension)
        self._file = file
        self._row = 4 * (2 + dimension)  # bytes
        self._mapped: tuple[tuple[int, int], Floats] | None = None

    def read(self) -> _Rows:
        """Return all rows as they are now."""
        try:
            state = self._file.stat()
            count = state.st_size // self._row  # a process may have been killed in a row
            if not count:
                return _Rows(self._make_table(0))
            key, mapped = (state.st_ino, count), self._mapped
            if mapped is None or mapped[0] != key:
                shape = (count, 2 + self.dimension)
                table = np.memmap(self._file, np.float32, "r", shape=shape)
                mapped = self._mapped = (key, table)
        except (OSError, ValueError) as error:
            what = f"cannot read the vectors of the library in {self._file}"
            why = "the file is missing" if isinstance(error, FileNotFoundError) else str(error)
            hint = "make them again with `colligate library verify --repair`"
            raise LibraryDamaged(what, why, hint) from error
        return _Rows(mapped[1])

    def append(self, entries: Sequence[IndexEntry]) -> None:
        """Add rows; return once they are on the disk."""
        with self._write(self._file) as file:
            whole = os.fstat(file.fileno()).st_size // self._row
            file.seek(whole * self._row)
            file.write(self._pack(entries).tobytes())

    def erase(self, passages: Collection[int]) -> None:
        """Write zeros over the rows of these passages."""
        places = np.flatnonzero(_is_in(self.read().numbers, passages)).tolist()
        if not places:
            return
        with self._write(self._file) as file:
            for place in places:
                file.seek(place * self._row)
                file.write(bytes(self._row))

    def compact(self) -> None:
        """Write the file without its empty rows, once there are many."""
        rows = self.read()
        places = np.flatnonzero(rows.numbers)
        if len(places) >= (1 - _SPARSE) * len(rows.numbers):
            return
        new = self._file.with_suffix(".new")
        new.unlink(missing_ok=True)
        with self._write(new) as file:
            for at in range(0, len(places), _BLOCK):
                file.write(rows.table[places[at : at + _BLOCK]].tobytes())
        with suppress(PermissionError):  # on Windows while another process searches
            new.replace(self._file)
        new.unlink(missing_ok=True)

    def close(self) -> None:
        """Unmap the file. Safe to call twice."""
        self._mapped = None

    @contextmanager
    def _write(self, path: Path) -> Iterator[BinaryIO]:
        """Open a file to write in it what is on the disk in the end."""
        try:
            make_private_file(path)
            with path.open("r+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            what = f"cannot write the vectors of the library in {self._file}"
            hint = "name a folder with space that you can write with --library"
            raise LibraryError(what, error.strerror or str(error), hint) from error
