"""The one embedder a library is made with."""

from __future__ import annotations

import asyncio

from colligate.errors import EmbedderMismatch
from colligate.library.blocking import in_thread
from colligate.library.catalogue import Catalogue
from colligate.library.schema import State
from colligate.models import Embedder


class LibraryEmbedder:
    """Opens an embedder when it is first needed, and holds the library to it.

    Vectors of two models do not compare, so a library with indexed documents accepts only
    the model that made them.
    """

    def __init__(self, named: Embedder | str) -> None:
        self._named = named
        self._embedder: Embedder | None = None
        self._opening = asyncio.Lock()

    async def open(self, catalogue: Catalogue) -> Embedder:
        """The embedder, for searching.

        Raises:
            EmbedderMismatch: if the library's passages were embedded by another.
            ModelError, UsageError: if the name cannot be opened.
        """
        async with self._opening:
            if self._embedder is None:
                if isinstance(self._named, str):
                    # Imported here: parser processes, too, import this package, and wait for it.
                    from colligate.models.names import open_embedder

                    self._embedder = await asyncio.to_thread(open_embedder, self._named)
                else:
                    self._embedder = self._named
        await in_thread(_check, catalogue, self._embedder)
        return self._embedder

    async def record(self, catalogue: Catalogue) -> Embedder:
        """The embedder, for indexing: from now on it is the library's."""
        embedder = await self.open(catalogue)
        await in_thread(_record, catalogue, embedder)
        return embedder

    async def close(self) -> None:
        """Free the embedder, if it was opened here by its name."""
        if self._embedder is not None and isinstance(self._named, str):
            await self._embedder.aclose()
        self._embedder = None


def _record(catalogue: Catalogue, embedder: Embedder) -> None:
    # An embedder behind an endpoint may have to ask for its dimension, which blocks.
    catalogue.set_meta(embedder=embedder.name, dimension=str(embedder.dimension))


def _check(catalogue: Catalogue, embedder: Embedder) -> None:
    name, dimension = catalogue.meta("embedder"), catalogue.meta("dimension")
    if name is None or (name, dimension) == (embedder.name, str(embedder.dimension)):
        return
    if catalogue.in_state(State.INDEXED):
        raise EmbedderMismatch(
            f"cannot use the embedder {embedder.name} ({embedder.dimension} dimensions) here",
            f"the library's passages were embedded by {name} ({dimension} dimensions)",
            f"use --embedder {name}, or another --library",
        )
