"""The passage index, in process, on Qdrant Edge.

The shard is written without Qdrant's own write-ahead log: the catalogue marks a document as
indexed only after a flush, so what a crash loses is embedded again, and no log keeps removed data.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import qdrant_edge as qdrant
from numpy.typing import NDArray

from colligate.errors import LibraryDamaged
from colligate.library.bm25 import Terms
from colligate.library.index import IndexEntry, Scope, ScoredPassage

_DENSE, _SPARSE, _DOCUMENT = "dense", "bm25", "document"

# Kilobytes of vectors from which a graph (HNSW) is built: 100,000 MiniLM passages. Below it
# search is exact, which is fast enough and gives the same order every time.
_GRAPH_FROM = 150_000

_PAGE = 10_000  # passages listed at once


class EdgeIndex:
    """A `PassageIndex` in a folder of its own."""

    def __init__(self, shard: qdrant.EdgeShard) -> None:
        self._shard: qdrant.EdgeShard | None = shard

    @classmethod
    def create(cls, path: Path, dimension: int | None) -> EdgeIndex:
        """Make an empty index for vectors of this length; None for words alone."""
        path.mkdir(parents=True, exist_ok=True)
        dense = (
            {}
            if dimension is None
            else {_DENSE: qdrant.EdgeVectorParams(size=dimension, distance=qdrant.Distance.Dot)}
        )
        config = qdrant.EdgeConfig(
            vectors=dense,
            sparse_vectors={_SPARSE: qdrant.EdgeSparseVectorParams(modifier=qdrant.Modifier.Idf)},
            # `optimise` must erase everything that was removed.
            optimizers=qdrant.EdgeOptimizersConfig(
                deleted_threshold=1e-9, vacuum_min_vector_number=1, indexing_threshold=_GRAPH_FROM
            ),
            wal_enabled=False,
        )
        shard = qdrant.EdgeShard.create(str(path), config)
        shard.update(
            qdrant.UpdateOperation.create_field_index(_DOCUMENT, qdrant.PayloadSchemaType.Integer)
        )
        shard.flush()
        return cls(shard)

    @classmethod
    def open(cls, path: Path) -> EdgeIndex:
        """Open an existing index; raise `LibraryDamaged` if that is not possible."""
        try:
            return cls(qdrant.EdgeShard.load(str(path)))
        except Exception as error:  # the binding raises bare exceptions of several kinds
            raise LibraryDamaged(
                f"cannot open the passage index in {path}",
                str(error),
                "rebuild it with `colligate library verify --repair`",
            ) from error

    def upsert(self, entries: Sequence[IndexEntry]) -> None:
        points = [
            qdrant.Point(entry.passage, _vectors(entry), {_DOCUMENT: entry.document})
            for entry in entries
        ]
        self._open.update(qdrant.UpdateOperation.upsert_points(points))

    def nearest(self, vector: NDArray[np.float32], limit: int, scope: Scope) -> list[ScoredPassage]:
        return self._query(qdrant.Query.Nearest(vector.tolist(), using=_DENSE), limit, scope)

    def matching(self, terms: Terms, limit: int, scope: Scope) -> list[ScoredPassage]:
        if not terms:
            return []
        query = qdrant.Query.Nearest(_sparse(terms), using=_SPARSE)
        return self._query(query, limit, scope)

    def remove(self, documents: Collection[int]) -> None:
        if documents:
            operation = qdrant.UpdateOperation.delete_points_by_filter(
                qdrant.Filter(must=[_any_of(documents)])
            )
            self._open.update(operation)

    def remove_passages(self, passages: Collection[int]) -> None:
        if passages:
            self._open.update(qdrant.UpdateOperation.delete_points(list(passages)))

    def passages(self) -> dict[int, int]:
        found: dict[int, int] = {}
        offset = None
        while True:
            records, offset = self._open.scroll(
                qdrant.ScrollRequest(
                    offset=offset, limit=_PAGE, with_payload=True, with_vector=False
                )
            )
            found.update((_number(record), _document(record)) for record in records)
            if offset is None:
                return found

    def count(self) -> int:
        return int(self._open.count(qdrant.CountRequest(exact=True)))

    def flush(self) -> None:
        self._open.flush()

    def optimise(self) -> None:
        self._open.optimize()
        self._open.flush()  # only now are the old segments deleted

    def close(self) -> None:
        if self._shard is not None:
            with suppress(RuntimeError):
                self._shard.flush()
            self._shard.close()
            self._shard = None

    @property
    def _open(self) -> qdrant.EdgeShard:
        if self._shard is None:
            raise RuntimeError("the index is closed")
        return self._shard

    def _query(self, query: qdrant.Query, limit: int, scope: Scope) -> list[ScoredPassage]:
        request = qdrant.QueryRequest(
            limit=limit, query=query, filter=_filter(scope), with_payload=True
        )
        return [
            ScoredPassage(_number(point), _document(point), point.score)
            for point in self._open.query(request)
        ]


def _vectors(entry: IndexEntry) -> dict[str, qdrant.NamedVector]:
    vectors: dict[str, qdrant.NamedVector] = {_SPARSE: _sparse(entry.terms)}
    if entry.vector is not None:
        vectors[_DENSE] = entry.vector.tolist()
    return vectors


def _sparse(terms: Terms) -> qdrant.SparseVector:
    return qdrant.SparseVector(terms.ids, terms.weights)


def _number(point: qdrant.Record | qdrant.ScoredPoint) -> int:
    assert isinstance(point.id, int)
    return point.id


def _document(point: qdrant.Record | qdrant.ScoredPoint) -> int:
    assert point.payload is not None
    return int(point.payload[_DOCUMENT])


def _any_of(documents: Collection[int]) -> qdrant.FieldCondition:
    return qdrant.FieldCondition(_DOCUMENT, match=qdrant.MatchAny(list(documents)))


def _filter(scope: Scope) -> qdrant.Filter | None:
    must: list[qdrant.ConditionType] = []
    must_not: list[qdrant.ConditionType] = []
    if scope.within is not None:
        must.append(_any_of(scope.within))
    if scope.without:
        must_not.append(_any_of(scope.without))
    return qdrant.Filter(must=must, must_not=must_not) if must or must_not else None
