"""Measure search: milliseconds, memory and disk by size.

    python benchmarks/search.py --sizes 1000 20000 200000 [--engine sqlite|lance] [--questions 200]
        [--place s3://BUCKET/NAME]

--place is a bucket for Lance tables. Each size is a fresh library of documents of 50 passages of
about 120 words, drawn from a vocabulary by Zipf's law, with random unit vectors of 384 dimensions.
The time of a search is all of `AsyncLibrary.search` except embedding the query, which takes no time
here; that of the processor is what remains of it on a machine with other work. How many of the 50
nearest passages are found is counted for Lance tables, whose index of vectors is not exact.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from chance import RandomVectors, Words
from colligate.documents import Document, Span, flat_tree
from colligate.library import SearchMode
from colligate.library.library import AsyncLibrary
from colligate.library.protocols import FileRecord, Scope
from colligate.library.store import LibraryStore
from colligate.scale.index import LanceIndex
from colligate.scale.lance import LanceStore
from results import read_arguments, say

PASSAGES, WORDS = 50, 120
QUESTION_WORDS, K = 10, 10
NEAREST, TRIES = 50, 20
GOALS = {20_000: "goal <= 5 ms", 200_000: "goal <= 60 ms"}
FILES_TOGETHER = 100


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


async def fill(path: Path, place: str, engine: str, size: int, words: Words) -> None:
    """Store documents as pending, as ingestion does."""
    store = LanceStore(path, place) if engine == "lance" else LibraryStore(path)
    catalogue = await store.lock_catalogue()
    files = [
        (FileRecord(Path(f"/{n}"), 0, 0, 0, str(n)), [make_document(n, words)])
        for n in range(size // PASSAGES)
    ]
    begun = time.perf_counter()
    for at in range(0, len(files), FILES_TOGETHER):
        catalogue.store(files[at : at + FILES_TOGETHER])
    store.close()
    say(f"search {size}: storing the documents", time.perf_counter() - begun, "s")


async def time_searches(
    search: Callable[[str], Awaitable[object]], words: Words, questions: int
) -> tuple[list[float], float]:
    """Return the milliseconds of each question, sorted, and the median of the processor's."""
    times, worked = [], []
    for question in [words.draw(QUESTION_WORDS) for _ in range(questions)]:
        begun, before = time.perf_counter(), time.process_time()
        hits = await search(question)
        times.append((time.perf_counter() - begun) * 1000)
        worked.append((time.process_time() - before) * 1000)
        if not hits:
            raise SystemExit(f"nothing was found for {question!r}")
    return sorted(times), statistics.median(worked)


async def measure(size: int, engine: str, folder: Path, place: str, questions: int) -> None:
    words = Words()
    path = folder / "library"
    await fill(path, place, engine, size, words)
    begun, before = time.perf_counter(), time.process_time()
    async with AsyncLibrary(place or path, embedder=RandomVectors()) as library:
        await library.index_pending()
    say(f"search {size}: building the index", time.perf_counter() - begun, "s")
    say(f"search {size}: building, of the processor", time.process_time() - before, "s")
    disk = sum(file.stat().st_blocks * 512 for file in path.rglob("*"))
    say(f"search {size}: disk", disk / 1e6, "MB", "goal <= 80 MB" if size == 20_000 else None)
    say(f"search {size}: memory for building", _resident(), "MB", "resident, at most")


async def find_recall(folder: Path, place: str) -> float:
    """Return the share of the nearest passages that the index of vectors finds."""
    index = await LanceStore(folder / "library", place).open_index()
    assert isinstance(index, LanceIndex)
    queries = await RandomVectors().embed(["?"] * TRIES)
    found = 0
    for query in queries:
        ours = index.search_vector(query, NEAREST, Scope())
        nearest = {"column": "vector", "q": query, "k": NEAREST, "metric": "dot"}
        exact = index.table.read(["number"], nearest=nearest | {"use_index": False})
        found += len({each.passage for each in ours} & set(exact["number"].to_pylist()))
    return found / (NEAREST * TRIES)


async def ask(size: int, engine: str, folder: Path, place: str, questions: int) -> None:
    words = Words()
    where = place or folder / "library"
    async with AsyncLibrary(where, embedder=RandomVectors()) as library:
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
            times, worked = await time_searches(search, words, questions)
            goal = GOALS.get(size) if kind == "hybrid" else None
            say(f"search {size}: {kind} p50", statistics.median(times), "ms", goal)
            say(f"search {size}: {kind} p95", times[int(len(times) * 0.95)], "ms")
            say(f"search {size}: {kind} p50 of the processor", worked, "ms", goal)
        say(f"search {size}: memory for searching", _resident() - before, "MB", "resident, grown")
    if engine == "lance":
        say(f"search {size}: nearest passages found", await find_recall(folder, place), "share")


def _resident() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def _run(step: Callable[..., Awaitable[None]], *args: Any) -> None:
    asyncio.run(step(*args))  # type: ignore[arg-type]


def main() -> None:
    options = {"engine": ("sqlite", "lance"), "questions": 200, "place": ""}
    given = read_arguments(__doc__, sizes=[1_000, 20_000], **options)
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            for step in (measure, ask):  # separate processes, to measure memory
                place = f"{given.place}/{size}" if given.place else ""
                args = (step, size, given.engine, Path(folder), place, given.questions)
                with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
                    process.submit(_run, *args).result()


if __name__ == "__main__":
    main()
