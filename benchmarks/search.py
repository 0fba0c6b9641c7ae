"""Measure search by the size of the library: milliseconds a question, memory and disk.

    python benchmarks/search.py --sizes 1000 20000 200000

Each size is a fresh library of documents of 50 passages of about 120 words, drawn from a
vocabulary by Zipf's law, with random unit vectors of 384 dimensions. The time of a search is
all of `AsyncLibrary.search` except embedding the query, which takes no time here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from colligate.documents import Document, Span, flat_tree
from colligate.library import AsyncLibrary, SearchMode
from colligate.library.catalogue import Catalogue, FileRecord

DIMENSION = 384
PASSAGES, WORDS, VOCABULARY = 50, 120, 50_000
QUESTIONS, QUESTION_WORDS, K = 200, 10, 10


class RandomVectors:
    """Embed texts as random vectors that take no time."""

    name = "random"
    dimension = DIMENSION

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)

    async def embed(self, texts: Sequence[str], kind: str = "passage") -> NDArray[np.float32]:
        vectors = self._random.standard_normal((len(texts), DIMENSION), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    async def aclose(self) -> None:
        pass


class Words:
    """Draw words with the frequencies of Zipf's law."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(2)
        letters = self._random.integers(97, 123, (VOCABULARY, 9)).astype(np.uint8)
        lengths = self._random.integers(3, 10, VOCABULARY)
        self._words = [bytes(row[:n]).decode() for row, n in zip(letters, lengths, strict=True)]
        weights = 1 / np.arange(1, VOCABULARY + 1)
        self._chances = np.cumsum(weights / weights.sum())

    def draw(self, count: int) -> str:
        """Return a text of so many words."""
        at = np.searchsorted(self._chances, self._random.random(count))
        return " ".join(self._words[i] for i in at)


def make_document(number: int, words: Words) -> tuple[Document, list[Span]]:
    """Return a document of some passages, and their spans."""
    parts = [words.draw(WORDS) for _ in range(PASSAGES)]
    text = "\n\n".join(parts)
    id_ = f"document-{number}"
    spans, start = [], 0
    for part in parts:
        spans.append(Span(id_, start, start + len(part)))
        start += len(part) + 2
    return Document(id_, id_, text, flat_tree(id_, len(text)), language="en"), spans


def fill(path: Path, size: int, words: Words) -> None:
    """Store documents as pending, as ingestion does."""
    path.mkdir()
    catalogue = Catalogue(path / "catalogue.sqlite")
    for n in range(size // PASSAGES):
        catalogue.store(FileRecord(Path(f"/{n}"), 0, 0, 0, str(n)), [make_document(n, words)])
    catalogue.close()


async def time_searches(search: Callable[[str], Awaitable[object]], words: Words) -> list[float]:
    """Return the milliseconds of each question, sorted."""
    times = []
    for question in [words.draw(QUESTION_WORDS) for _ in range(QUESTIONS)]:
        begun = time.perf_counter()
        hits = await search(question)
        times.append((time.perf_counter() - begun) * 1000)
        if not hits:
            raise SystemExit(f"nothing was found for {question!r}")
    return sorted(times)


def say(figure: str, value: float, unit: str, against: str | None = None) -> None:
    line = {"figure": figure, "value": round(value, 3), "unit": unit, "against": against}
    print(json.dumps(line), flush=True)


async def measure(size: int, folder: Path) -> None:
    words = Words()
    path = folder / "library"
    fill(path, size, words)
    begun = time.perf_counter()
    async with AsyncLibrary(path, embedder=RandomVectors()) as library:
        await library.index_pending()
    say(f"search {size}: building the index", time.perf_counter() - begun, "s")
    disk = sum(file.stat().st_blocks * 512 for file in path.rglob("*"))
    index = sum(file.stat().st_blocks * 512 for file in (path / "index").rglob("*"))
    say(f"search {size}: disk", disk / 1e6, "MB", f"index {index / 1e6:.0f} MB")


async def ask(size: int, folder: Path) -> None:
    words = Words()
    async with AsyncLibrary(folder / "library", embedder=RandomVectors()) as library:
        before = _resident()
        begun = time.perf_counter()
        await library.search("first question", k=K)
        say(f"search {size}: opening", (time.perf_counter() - begun) * 1000, "ms")
        one = [f"document-{size // PASSAGES // 2}"]
        kinds: dict[str, Callable[[str], Awaitable[object]]] = {
            "hybrid": lambda q: library.search(q, k=K),
            "dense": lambda q: library.search(q, k=K, mode=SearchMode.DENSE),
            "sparse": lambda q: library.search(q, k=K, mode=SearchMode.SPARSE),
            "hybrid within one document": lambda q: library.search(q, k=K, documents=one),
        }
        for kind, search in kinds.items():
            times = await time_searches(search, words)
            goal = "goal < 20 ms" if size == 20_000 and kind == "hybrid" else None
            say(f"search {size}: {kind} p50", statistics.median(times), "ms", goal)
            say(f"search {size}: {kind} p95", times[int(len(times) * 0.95)], "ms", goal)
        say(f"search {size}: memory for searching", _resident() - before, "MB", "resident, grown")


def _resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _run(step: Callable[[int, Path], Awaitable[None]], size: int, folder: Path) -> None:
    asyncio.run(step(size, folder))  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 20_000])
    for size in parser.parse_args().sizes:
        with tempfile.TemporaryDirectory() as folder:
            for step in (measure, ask):  # separate processes, to measure memory
                context = multiprocessing.get_context("spawn")
                process = context.Process(target=_run, args=(step, size, Path(folder)))
                process.start()
                process.join()
                if process.exitcode:
                    raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
