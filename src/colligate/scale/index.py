"""The vectors and terms of a library's passages in Lance tables."""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from colligate.errors import LibraryDamaged, LibraryLocked
from colligate.library.bm25 import Terms
from colligate.library.passages import take_best
from colligate.library.protocols import IndexEntry, Scope, ScoredPassage
from colligate.scale.tables import (
    COMPARED_EXACTLY,
    EVERY_PARTITION,
    NUMBER,
    PASSAGES,
    WORDS,
    Table,
    TablesPlace,
    any_of,
    pa,
)

_ROWS_EACH = 1 << 16  # passages in one file: about 100 MB


_NUMBERS = ("number", "document")
_VERSIONS = 2  # whose words are in memory


@dataclass(frozen=True, slots=True)
class _Inverted:
    """Which rows have which terms: `rows[starts[i]:starts[i + 1]]` have `terms[i]`."""

    terms: NDArray[np.uint32]  # in order, each once
    starts: NDArray[np.int64]
    rows: NDArray[np.int32]  # from 0
    weights: NDArray[np.float32]

    @classmethod
    def of(cls, found: pa.Table) -> _Inverted:
        """Invert the terms of rows."""
        lists, weights = (found[name].combine_chunks() for name in ("terms", "weights"))
        rows = np.arange(len(found), dtype=np.int32)
        rows = np.repeat(rows, lists.value_lengths().to_numpy())
        ids = lists.flatten().to_numpy()
        order = np.argsort(ids, kind="stable")
        terms, starts = np.unique(ids[order], return_index=True)
        starts = np.append(starts, len(ids))
        return cls(terms, starts, rows[order], weights.flatten().to_numpy()[order])

    def find(self, term: int) -> _Posting | None:
        """Return the rows that have a term, and its weight in each."""
        if (at := _find_place(self.terms, term)) is None:
            return None
        part = slice(self.starts[at], self.starts[at + 1])
        return self.rows[part], self.weights[part]

    def to_table(self, numbers: NDArray[np.int64]) -> pa.Table:
        """Return a row for each term; the first one also has the numbers of all passages."""
        lists = (self.rows, self.weights)
        columns = [pa.LargeListArray.from_arrays(self.starts, each) for each in lists]
        rest = [None] * (len(self.terms) - 1)
        columns.append(pa.array([numbers, *rest], pa.large_list(pa.int64())))
        return pa.table([self.terms, *columns], ["term", "rows", "weights", "numbers"])


_Posting = tuple[NDArray[Any], NDArray[np.float32]]


def _find_place(terms: NDArray[np.uint32], term: int) -> int | None:
    at = int(np.searchsorted(terms, np.uint32(term)))
    return at if at < len(terms) and terms[at] == term else None


class _Words:
    """Which passages of one version have which terms.

    The table of words may be of an older or a newer version: passages that it lacks are read from
    their own table, and those it has besides are left out. A number's terms never change.

    Attributes:
        numbers: all passages, in order.
        documents: the document of each.
    """

    def __init__(self, passages: Table, words: Table | None) -> None:
        found = passages.read(_NUMBERS).sort_by("number")
        self.numbers, self.documents = (found[name].to_numpy() for name in _NUMBERS)
        self._words = words
        self._terms = np.empty(0, np.uint32)
        old = np.empty(0, np.int64)
        if words:
            self._terms = words.read(["term"])["term"].to_numpy()
            old = words.take([0], ["numbers"])["numbers"].combine_chunks().flatten().to_numpy()
        self._places = self._find_places(old)
        is_new = np.ones(len(self.numbers), bool)
        is_new[self._places[self._places >= 0]] = False
        of = _to_filter(Scope(set(self.documents[is_new].tolist()))) if len(old) else None
        found = passages.read([*_NUMBERS, "terms", "weights"], of)
        places = self._find_places(found["number"].to_numpy())
        keep = (places >= 0) & is_new[places]
        self._new_places = places[keep]
        self._new = _Inverted.of(found.filter(pa.array(keep)))

    def find(self, terms: Sequence[int]) -> dict[int, _Posting]:
        """Return for each term that any passage has their places and its weight in each."""
        found_at = ((term, _find_place(self._terms, term)) for term in terms)
        at = {term: place for term, place in found_at if place is not None}
        parts: dict[int, list[_Posting]] = {term: [] for term in terms}
        if self._words and at:
            taken = self._words.take(list(at.values()), ["rows", "weights"])
            rows, weights = (taken[name].combine_chunks() for name in ("rows", "weights"))
            for i, term in enumerate(at):
                places = self._places[rows[i].values.to_numpy()]
                is_here = places >= 0
                parts[term].append((places[is_here], weights[i].values.to_numpy()[is_here]))
        for term, found in parts.items():
            if new := self._new.find(term):
                found.append((self._new_places[new[0]], new[1]))
        return {
            term: (np.concatenate([p for p, _ in found]), np.concatenate([w for _, w in found]))
            for term, found in parts.items()
            if found
        }

    def _find_places(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return where passages are among those of this version; those that are not there: -1."""
        if not len(self.numbers):
            return np.full(len(numbers), -1)
        at = np.searchsorted(self.numbers, numbers)
        at[at == len(self.numbers)] = 0
        return np.where(self.numbers[at] == numbers, at, -1)


class LanceIndex:
    """Passages' vectors and terms in one table, and an index of the terms in another."""

    def __init__(self, table: Table, place: TablesPlace) -> None:
        self.table = table
        self._place = place
        self._words = LRUCache[int, _Words](_VERSIONS)
        self._reading = threading.Lock()

    @classmethod
    def make(cls, place: TablesPlace, dimension: int) -> LanceIndex:
        """Make an empty index for vectors of this length."""
        schema = pa.schema(
            [
                NUMBER,
                pa.field("document", pa.int64()),
                pa.field("vector", pa.list_(pa.float32(), dimension)),
                pa.field("terms", pa.list_(pa.uint32())),
                pa.field("weights", pa.list_(pa.float32())),
            ]
        )
        place.check_space()
        return cls(place.make(PASSAGES, schema.empty_table()), place)

    def pin(self) -> LanceIndex:
        """Return the index as it is now."""
        pinned = copy.copy(self)  # what was read of the words serves both
        pinned.table = self.table.pin()
        return pinned

    @property
    def dimension(self) -> int:
        """The length of the vectors."""
        return int(self.table.schema.field("vector").type.list_size)

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        if not entries:
            return
        self._place.check_space()
        vectors = np.concatenate([entry.vector for entry in entries if entry.vector is not None])
        columns = [
            [entry.passage for entry in entries],
            [entry.document for entry in entries],
            pa.FixedSizeListArray.from_arrays(pa.array(vectors), self.dimension),
            pa.array([entry.terms.ids for entry in entries], pa.list_(pa.uint32())),
            pa.array([entry.terms.weights for entry in entries], pa.list_(pa.float32())),
        ]
        self.table.upsert(pa.table(columns, schema=self.table.schema))

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, scope: Scope
    ) -> list[ScoredPassage]:
        where = _to_filter(scope)
        if where == _NOTHING:
            return []
        nearest: dict[str, Any] = {"column": "vector", "q": vector, "k": limit, "metric": "dot"}
        if scope.within is None:  # passages newer than the index are compared exactly, all of them
            nearest |= {"nprobes": EVERY_PARTITION, "refine_factor": COMPARED_EXACTLY}
        else:
            nearest["use_index"] = False
        found = self.table.read([*_NUMBERS, "_distance"], where, nearest=nearest, prefilter=True)
        rows = zip(*(found[name].to_pylist() for name in (*_NUMBERS, "_distance")), strict=True)
        return [ScoredPassage(number, document, 1 - far) for number, document, far in rows]

    def search_terms(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        """Return the passages that share a term, by BM25 score as Qdrant counts it, best first.

        How rare a term is counts over all passages, or over those of `scope.among`.
        """
        if not terms:
            return []
        words = self._find_words()
        try:
            found = words.find(terms.ids)
        except LibraryDamaged:  # perhaps the files of its version were erased a moment ago
            self._words.clear()
            words = self._find_words()
            found = words.find(terms.ids)
        scores = np.zeros(len(words.numbers), np.float32)
        counted = np.ones(len(words.numbers), bool)
        if scope.among is not None:
            counted = np.isin(words.documents, list(scope.among))
        total = np.count_nonzero(counted)
        for id_, weight in zip(terms.ids, terms.weights, strict=True):
            if id_ in found:
                at, weights = found[id_]
                count = np.count_nonzero(counted[at])
                idf = np.log(np.float32((total - count + 0.5) / (count + 0.5)) + np.float32(1))
                scores[at] += np.float32(weight) * idf * weights
        numbers = np.where(scores > 0, words.numbers, 0)
        return take_best(scores, numbers, words.documents, limit, scope)

    def _find_words(self) -> _Words:
        """Return the terms of this version."""
        with self._reading:
            version = self.table.refresh()
            if (words := self._words.get(version)) is None:
                words = self._words[version] = _Words(self.table, self._place.open(WORDS))
            return words

    def remove(self, documents: Collection[int]) -> None:
        if documents:
            self.table.delete(any_of("document", documents))

    def remove_passages(self, passages: Collection[int]) -> None:
        if passages:
            self.table.delete(any_of("number", passages))

    def passages(self) -> dict[int, int]:
        found = self.table.read(_NUMBERS)
        return dict(zip(*(found[name].to_pylist() for name in _NUMBERS), strict=True))

    def count(self) -> int:
        return self.table.count()

    def optimise(self, *, erase: bool = True) -> None:
        self.table.tidy(_ROWS_EACH, indexes=True, erase=erase)
        if not self.table.is_large():
            self._place.delete(WORDS)
            return
        found = self.table.read(["number", "terms", "weights"]).sort_by("number")
        rows = _Inverted.of(found).to_table(found["number"].to_numpy())
        with suppress(LibraryLocked):  # another process makes it now
            self._place.replace(WORDS, rows).tidy(_ROWS_EACH, erase=erase)

    def close(self) -> None:
        pass


_NOTHING = "false"


def _to_filter(scope: Scope) -> str | None:
    if scope.within is not None and not scope.within:
        return _NOTHING
    parts = [] if scope.within is None else [any_of("document", scope.within)]
    if scope.without:
        parts.append(f"NOT {any_of('document', scope.without)}")
    return " AND ".join(parts) or None
