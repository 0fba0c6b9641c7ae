"""The passage index, in process, on Qdrant Edge.

An index holds only numbers: passage numbers, document numbers, vectors and hashed terms. The text
stays in the catalogue, so an index never has to be searched for removed text.

The shard is written without Qdrant's own write-ahead log: the catalogue marks a document as
indexed only after a flush, so what a crash loses is embedded again, and no log keeps removed data.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import qdrant_edge as qdrant
from numpy.typing import NDArray

from colligate.errors import LibraryDamaged, LibraryError
from colligate.library.bm25 import Terms
from colligate.library.protocols import IndexEntry, Scope, ScoredPassage
from colligate.library.schema import disk_full, is_full
from colligate.private import make_private_folder

_DENSE, _SPARSE, _DOCUMENT = "dense", "bm25", "document"

# Kilobytes of vectors (20,000 MiniLM passages) from which an index is written in the form that
# opens without being read. It has no graph of vectors (HNSW): for 200,000 passages one takes seven
# minutes and saves 30 ms a search (docs/decisions/0009-library.md). Exact search also gives one
# order every time.
_COMPACT_FROM = 30_000
_NO_GRAPH = qdrant.HnswIndexConfig(m=0, ef_construct=4, full_scan_threshold=1 << 40)

_PAGE = 10_000  # passages listed at once
_MOST = 1 << 31


class EdgeIndex:
    """A `PassageStore` in a folder, by vector and by words. Calls block; one thread writes."""

    def __init__(self, shard: qdrant.EdgeShard, path: Path) -> None:
        self._shard: qdrant.EdgeShard | None = shard
        self._path = path

    @classmethod
    def create(cls, path: Path, dimension: int | None) -> EdgeIndex:
        """Make an empty index for vectors of this length; None for words alone."""
        make_private_folder(path)
        check_space(path)
        dense = {}
        if dimension is not None:
            dense[_DENSE] = qdrant.EdgeVectorParams(
                size=dimension,
                distance=qdrant.Distance.Dot,
                on_disk=True,  # mapped: opening does not read them all
                hnsw_config=_NO_GRAPH,
            )
        config = qdrant.EdgeConfig(
            vectors=dense,
            sparse_vectors={_SPARSE: qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf)},
            # `optimise` must erase everything that was removed.
            optimizers=qdrant.EdgeOptimizersConfig(
                deleted_threshold=1e-9, vacuum_min_vector_number=1, indexing_threshold=_COMPACT_FROM
            ),
            wal_enabled=False,
        )
        with _translate_errors(path):
            shard = qdrant.EdgeShard.create(str(path), config)
            shard.update(
                qdrant.UpdateOperation.create_field_index(
                    _DOCUMENT, qdrant.PayloadSchemaType.Integer
                )
            )
            shard.flush()
        return cls(shard, path)

    @classmethod
    def open(cls, path: Path) -> EdgeIndex:
        """Open an existing index; raise `LibraryDamaged` if that is not possible."""
        try:
            return cls(qdrant.EdgeShard.load(str(path)), path)
        except Exception as error:  # the binding raises bare exceptions of several kinds
            if is_full(path):
                raise disk_full(f"cannot open the passage index in {path}") from error
            raise LibraryDamaged(
                f"cannot open the passage index in {path}",
                str(error),
                "rebuild it with `colligate library verify --repair`",
            ) from error

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        points = [
            qdrant.Point(entry.passage, _to_vectors(entry), {_DOCUMENT: entry.document})
            for entry in entries
        ]
        self._update(qdrant.UpdateOperation.upsert_points(points))

    def search_vector(
        self, vector: NDArray[np.float32], limit: int, scope: Scope
    ) -> list[ScoredPassage]:
        return self._query(qdrant.Query.Nearest(vector.tolist(), using=_DENSE), limit, scope)

    def search_terms(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        if not terms:
            return []
        query = qdrant.Query.Nearest(_to_sparse(terms), using=_SPARSE)
        return self._query(query, limit, scope)

    def entries(self, document: int) -> list[IndexEntry]:
        page = qdrant.ScrollRequest(
            limit=_MOST, filter=_make_filter(Scope([document])), with_vector=True
        )
        records, _ = self._open.scroll(page)
        found = []
        for record in records:
            assert isinstance(record.vector, dict)
            stored: dict[str, Any] = record.vector
            dense, sparse = stored.get(_DENSE), stored[_SPARSE]
            vector = None if dense is None else np.array(dense, np.float32)
            terms = Terms(list(sparse.indices), list(sparse.values))
            found.append(IndexEntry(_read_number(record), document, vector, terms))
        return sorted(found, key=lambda entry: entry.passage)

    def remove(self, documents: Collection[int]) -> None:
        if documents:
            theirs = qdrant.Filter(must=[_match_any(documents)])
            self._update(qdrant.UpdateOperation.delete_points_by_filter(theirs))

    def remove_passages(self, passages: Collection[int]) -> None:
        if passages:
            self._update(qdrant.UpdateOperation.delete_points(list(passages)))

    def passages(self) -> dict[int, int]:
        found: dict[int, int] = {}
        offset = None
        while True:
            page = qdrant.ScrollRequest(offset=offset, limit=_PAGE, with_payload=True)
            records, offset = self._open.scroll(page)
            found.update((_read_number(record), _read_document(record)) for record in records)
            if offset is None:
                return found

    def count(self) -> int:
        return int(self._open.count(qdrant.CountRequest(exact=True)))

    def flush(self) -> None:
        with _translate_errors(self._path):
            self._open.flush()

    def optimise(self, *, erase: bool = True) -> None:
        """Rebuild grown segments and those with removed passages, and erase the latter. Slow.

        There are no older versions.
        """
        # The rebuilt segments are written beside the old ones.
        files = (each for each in self._path.rglob("*") if each.is_file())
        check_space(self._path, sum(file.stat().st_size for file in files))
        with _translate_errors(self._path):
            self._open.optimize()
        self.flush()  # only now are the old segments deleted

    def close(self) -> None:
        """Flush and close. Safe to call twice."""
        if self._shard is not None:
            # A full disk loses nothing here: the catalogue counts only on what was flushed before.
            with suppress(Exception):
                self._shard.flush()
            with suppress(Exception):
                self._shard.close()
            self._shard = None

    def _update(self, change: qdrant.UpdateOperation) -> None:
        check_space(self._path)
        with _translate_errors(self._path):
            self._open.update(change)

    @property
    def _open(self) -> qdrant.EdgeShard:
        if self._shard is None:
            raise RuntimeError("the index is closed")
        return self._shard

    def _query(self, query: qdrant.Query, limit: int, scope: Scope) -> list[ScoredPassage]:
        request = qdrant.QueryRequest(
            limit=limit, query=query, filter=_make_filter(scope), with_payload=True
        )
        return [
            ScoredPassage(_read_number(point), _read_document(point), point.score)
            for point in self._open.query(request)
        ]


_SPARE = 64 << 20  # bytes


def check_space(folder: Path, more: int = 0) -> None:
    """Raise `LibraryError` if the disk is nearly full, or would be after `more` bytes.

    The index maps its files into memory, so a full disk would kill the process.
    """
    free, needed = shutil.disk_usage(folder).free, _SPARE + more
    if free < needed:
        raise LibraryError(
            f"cannot write the passage index in {folder}",
            f"{free >> 20} MB are free on its disk, and at least {needed >> 20} MB are needed",
            "free some space, or name a library elsewhere with --library",
        )


@contextmanager
def _translate_errors(path: Path) -> Iterator[None]:
    """Raise the binding's bare exceptions as errors of colligate."""
    try:
        yield
    except LibraryError:
        raise
    except Exception as error:
        if is_full(path):
            raise disk_full(f"cannot write the passage index in {path}") from error
        raise LibraryError(
            f"cannot write the passage index in {path}",
            str(error),
            "check its disk, then run `colligate library verify --repair`",
        ) from error


def _to_vectors(entry: IndexEntry) -> dict[str, qdrant.NamedVector]:
    vectors: dict[str, qdrant.NamedVector] = {_SPARSE: _to_sparse(entry.terms)}
    if entry.vector is not None:
        vectors[_DENSE] = entry.vector.tolist()
    return vectors


def _to_sparse(terms: Terms) -> qdrant.SparseVector:
    return qdrant.SparseVector(terms.ids, terms.weights)


def _read_number(point: qdrant.Record | qdrant.ScoredPoint) -> int:
    assert isinstance(point.id, int)
    return point.id


def _read_document(point: qdrant.Record | qdrant.ScoredPoint) -> int:
    assert point.payload is not None
    return int(point.payload[_DOCUMENT])


def _match_any(documents: Collection[int]) -> qdrant.FieldCondition:
    return qdrant.FieldCondition(_DOCUMENT, match=qdrant.MatchAny(list(documents)))


def _make_filter(scope: Scope) -> qdrant.Filter | None:
    must: list[qdrant.ConditionType] = []
    if scope.within is not None:
        must = [_match_any(scope.within)]
    must_not: list[qdrant.ConditionType] = [_match_any(scope.without)] if scope.without else []
    return qdrant.Filter(must=must, must_not=must_not) if must or must_not else None
