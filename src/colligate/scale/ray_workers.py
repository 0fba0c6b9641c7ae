"""Reading and embedding on the workers of a Ray cluster; for the extra `scale`.

A task reads one file or embeds one batch of passages. Ray repeats the tasks of a worker or a node
that died. Only the process that asked writes to the library, so nothing is there twice. Files and
passages are sent to the workers: they need no disk in common.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import in_thread
from colligate.documents.reading import Limits, Reading
from colligate.library.parsing import ParsedFile, ParserPool, Reader
from colligate.models import Embedder
from colligate.models.names import open_embedder
from colligate.scale.ray_model import RETRIES, RayCluster, ray


class RayWorkers(RayCluster):
    """The workers of a cluster, on which files are read and passages embedded."""

    def parsers(self, reader: str, limits: Limits) -> RayParsers:
        """Return what reads files on the workers."""
        return RayParsers(self, reader, limits)

    def embedder(self, name: str, own: Embedder) -> RayEmbedder:
        """Return an embedder that embeds passages on the workers; `own` is the one of this name."""
        return RayEmbedder(self, name, own)


class RayParsers(ParserPool):
    """Reads files on the workers, and here what is refused."""

    def __init__(self, workers: RayWorkers, reader: str, limits: Limits) -> None:
        super().__init__(1, reader, limits)
        self._workers = workers
        self._task = (reader, limits)
        self._tasks: set[Any] = set()

    def read(
        self, path: Path, size: int = 0, known: str = "", reader: Reader | None = None
    ) -> ParsedFile:
        """Read one file on a worker; block until it is read.

        What is not an ordinary file of a size that may be read is refused here.
        """
        _, limits = self._task
        try:
            if reader or not path.is_file() or not 0 < size <= limits.file_bytes:
                return super().read(path, size, known, reader)
            data = path.read_bytes()
        except OSError:
            return super().read(path, size, known)  # which says what is wrong
        sha256 = hashlib.sha256(data).hexdigest()
        if sha256 == known:
            return ParsedFile(sha256)
        with self._workers.translate_errors():
            task = _read.remote(str(path), data, *self._task)
            self._tasks.add(task)
            try:
                read: ParsedFile = ray.get(task)
            finally:
                self._tasks.discard(task)
            return read

    def close(self) -> None:
        """End what is being read, here and on the workers."""
        super().close()
        for task in list(self._tasks):
            ray.cancel(task, force=True)


class RayEmbedder:
    """Embeds passages on the workers, and queries here."""

    def __init__(self, workers: RayWorkers, opened_by: str, own: Embedder) -> None:
        self._workers = workers
        self._opened_by = opened_by
        self._own = own
        self.name = own.name
        self.dimension = own.dimension

    async def embed(
        self, texts: Sequence[str], kind: Literal["passage", "query"] = "passage"
    ) -> NDArray[np.float32]:
        """Return one row per text; many calls at once are spread over the workers."""
        if kind == "query":
            return await self._own.embed(texts, kind)
        with self._workers.translate_errors():
            task = _embed.remote(self._opened_by, list(texts))
            rows: NDArray[np.float32] = await in_thread(ray.get, task)
            return rows

    async def aclose(self) -> None:
        """Do nothing: whoever opened the embedder closes it."""


# On the workers


@ray.remote(max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _read(path: str, data: bytes, reader: str, limits: Limits) -> ParsedFile:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        # Below the same folders and with the same name: a title may come from them.
        copy = Path(os.path.realpath(folder) + os.path.abspath(path))  # noqa: PTH100 (it is as given)
        copy.parent.mkdir(parents=True)
        copy.write_bytes(data)
        parsed = _open_parsers(reader, limits).read(copy, len(data))
    return _rename(parsed, lambda text: text.replace(str(copy), path))


@ray.remote(max_retries=RETRIES)  # type: ignore[untyped-decorator]
def _embed(name: str, texts: list[str]) -> NDArray[np.float32]:
    import asyncio

    return asyncio.run(_open_embedder(name).embed(texts))


@cache
def _open_parsers(reader: str, limits: Limits) -> ParserPool:
    return ParserPool(1, reader, limits)  # a file that ends its parser does not end the worker


@cache
def _open_embedder(name: str) -> Embedder:
    return open_embedder(name)


def _rename(parsed: ParsedFile, rename: Callable[[str], str]) -> ParsedFile:
    """Return what was read with the file's own path in the place of the copy's."""
    if (error := parsed.error) is not None:
        told = (rename(error.what), rename(error.why), rename(error.hint))
        return replace(parsed, error=type(error)(*told))
    reading: Any = parsed.reading
    if not isinstance(reading, Reading):
        return parsed
    documents = tuple(
        replace(each, source=rename(each.source), warnings=tuple(map(rename, each.warnings)))
        for each in reading.documents
    )
    return replace(parsed, reading=Reading(documents, tuple(map(rename, reading.warnings))))
