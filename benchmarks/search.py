"""Measure search: milliseconds, memory and disk by size, or how well two searches are joined.

    python benchmarks/search.py --sizes 1000 20000 200000 [--engine sqlite|lance] [--questions 200]
        [--place s3://BUCKET/NAME]
    python benchmarks/search.py --data DIR --indexes CACHE

Each size is a fresh library of documents of 50 passages of about 120 words, drawn from a
vocabulary by Zipf's law, with random unit vectors of 384 dimensions. The time of a search is
all of `AsyncLibrary.search` except embedding the query, which takes no time here; that of the
processor is what remains of it on a machine with other work. How many of the
50 nearest passages are found is counted for Lance tables, whose index of vectors is not exact.

With `--data` (a folder with `dev/`) dense search and BM25 are joined in several ways (`JOINS`) over
five sets, which are indexed in `CACHE` once (MiniLM; tens of minutes): all documents that a set's
questions bring, and 2,600 others for popqa, whose questions bring two each. Searched is in all of
them, and in those of the question alone. One half of the questions is to choose by, the other to
judge by; differences are from reciprocal ranks, paired, and drawn within each set.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import hashlib
import json
import math
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colligate.documents import Document, Hit, Span, flat_tree
from colligate.lab.bench.datasets.records import load_records
from colligate.lab.bench.significance import paired_bootstrap
from colligate.library import SearchMode
from colligate.library.library import AsyncLibrary
from colligate.library.protocols import FileRecord, Scope
from colligate.library.ranking import standardise
from colligate.library.store import LibraryStore
from colligate.models.embedders import MiniLM
from colligate.scale.index import LanceIndex
from colligate.scale.lance import LanceStore

DIMENSION = 384
PASSAGES, WORDS, VOCABULARY = 50, 120, 50_000
QUESTION_WORDS, K = 10, 10
NEAREST, TRIES = 50, 20
GOALS = {20_000: "goal <= 5 ms", 200_000: "goal <= 60 ms"}
FILES_TOGETHER = 100


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


async def fill(path: Path, place: str, engine: str, size: int, words: Words) -> None:
    """Store documents as pending, as ingestion does."""
    store = LanceStore(path, 0, place) if engine == "lance" else LibraryStore(path, 0)
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


def say(figure: str, value: float, unit: str, against: str | None = None) -> None:
    line = {"figure": figure, "value": round(value, 3), "unit": unit, "against": against}
    print(json.dumps(line), flush=True)


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
    index = await LanceStore(folder / "library", 0, place).open_index()
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


# How well two searches are joined

SETS = {
    "nq20": "nq20_gold_at_9",
    "popqa": "popqa",
    "musique": "musique",
    "2wikimultihopqa": "2wikimultihopqa",
    "hotpotqa": "hotpotqa",
}
READER = "colligate.lab.bench.datasets.passages:read_corpus_file"
OTHERS = {"popqa": 2_600}
DEPTH = 50  # passages of each search that are joined

Scores = Mapping[str, float]  # by passage


def join_ranks(searches: Sequence[Sequence[Hit]], constant: int = 60) -> Scores:
    """Return the sums of reciprocal ranks (Cormack, Clarke and Buettcher, SIGIR 2009)."""
    sums: defaultdict[str, float] = defaultdict(float)
    for hits in searches:
        for place, hit in enumerate(hits, 1):
            sums[hit.passage.id] += 1 / (constant + place)
    return sums


def join_scores(searches: Sequence[Sequence[Hit]], dense: float) -> Scores:
    """Return the sums of z-scores (Montague and Aslam, CIKM 2001), by the weight of dense search.

    A passage that a search did not return has its least score, or 0 if the search had no more.
    """
    ids = list(dict.fromkeys(hit.passage.id for hits in searches for hit in hits))
    total = np.zeros(len(ids))
    for hits, weight in zip(searches, (dense, 1 - dense), strict=True):
        scores = {hit.passage.id: hit.score for hit in hits}
        least = min(scores.values(), default=0.0) if len(hits) >= DEPTH else 0.0
        total += weight * standardise([scores.get(each, least) for each in ids])
    return dict(zip(ids, total, strict=True))


def join_common(searches: Sequence[Sequence[Hit]], dense: float) -> Scores:
    """Return the same with the passages that both searches returned first, scored among them."""
    first, second = ({hit.passage.id for hit in hits} for hits in searches)
    common = [[h for h in hits if h.passage.id in first & second] for hits in searches]
    above = {each: score + 100 for each, score in join_scores(common, dense).items()}
    return {**join_scores(searches, dense), **above}


JOINS: dict[str, Callable[[Sequence[Sequence[Hit]]], Scores]] = {
    "reciprocal ranks": join_ranks,
    "reciprocal ranks, constant 5": partial(join_ranks, constant=5),
    **{f"z-scores, dense {w}": partial(join_scores, dense=w) for w in (0.5, 0.6, 0.7)},
    **{f"z-scores of both, dense {w}": partial(join_common, dense=w) for w in (0.5, 0.6, 0.7)},
}


async def search_both(
    library: AsyncLibrary, question: str, within: Collection[str] | None = None
) -> dict[str, list[Hit]]:
    """Return what dense search and BM25 find alone, and each way of joining them."""
    modes = (SearchMode.DENSE, SearchMode.SPARSE)
    searches = [await library.search(question, k=DEPTH, mode=m, documents=within) for m in modes]
    found = dict(zip(("dense", "BM25"), searches, strict=True))
    every = {hit.passage.id: hit for hits in searches for hit in hits}
    for name, join in JOINS.items():
        scores = join(searches)
        # Rounded as the library does it: equal scores stay in the order of the first search.
        found[name] = sorted(every.values(), key=lambda hit: -round(scores[hit.passage.id], 5))
    return found


def judge(hits: Sequence[Hit], gold: Collection[str]) -> tuple[float, float]:
    """Return nDCG@10 and recall@6 of the gold documents, each counted once."""
    ranked = [hit.passage.document_id for hit in hits]
    places = [ranked.index(each) for each in set(gold) if each in ranked]
    gained = sum(1 / math.log2(place + 2) for place in places if place < 10)
    ideal = sum(1 / math.log2(place + 2) for place in range(min(len(set(gold)), 10)))
    return gained / ideal, sum(place < 6 for place in places) / len(set(gold))


def write_corpus(name: str, records: Sequence[dict[str, Any]], data: Path, path: Path) -> None:
    """Write the documents of a set's questions, and some others, in the order of its corpus."""
    own = {each["id"] for record in records for each in record["documents"]}
    others = OTHERS.get(name, 0)
    with gzip.open(path, "wt", encoding="utf-8") as file:
        for _, entry in load_records(data / f"dev/{name}.corpus.jsonl.gz"):
            if entry["id"] in own or others > 0:
                others -= entry["id"] not in own
                file.write(json.dumps(entry) + "\n")


async def compare_joins(data: Path, indexes: Path) -> None:
    embedder = MiniLM()
    # By where is searched and half, then way: set and values of each question.
    rows: defaultdict[tuple[str, str], defaultdict[str, list[tuple[str, float, float]]]]
    rows = defaultdict(lambda: defaultdict(list))
    for name, file in SETS.items():
        records = [record for _, record in load_records(data / f"dev/{file}.jsonl.gz")]
        path = indexes / f"{name}.corpus.jsonl.gz"
        if not path.exists():
            write_corpus(name, records, data, path)
        async with AsyncLibrary(indexes / name, embedder=embedder, reader=READER) as library:
            await library.add(path)
            for record in records:
                odd = hashlib.sha256(record["id"].encode()).digest()[0] % 2
                half = "other half" if odd else "half to choose by"
                own = [each["id"] for each in record["documents"]]
                for where, within in (("all", None), ("the question's own", own)):
                    if where == "all" or len(own) > 5:
                        found = await search_both(library, record["question"], within)
                        for way, hits in found.items():
                            values = judge(hits, record["gold_document_ids"])
                            rows[where, half][way].append((name, *values))
    for (where, half), ways in rows.items():
        _say_differences(f"in {where}, {half}", ways)


def _say_differences(where: str, ways: Mapping[str, Sequence[tuple[str, float, float]]]) -> None:
    sets = [name for name, *_ in ways["reciprocal ranks"]]
    for way, values in ways.items():
        for at, measure in ((1, "nDCG@10"), (2, "recall@6")):
            ours, theirs = ([v[at] for v in each] for each in (values, ways["reciprocal ranks"]))
            for name in [None, *dict.fromkeys(sets)]:
                places = [place for place, each in enumerate(sets) if name in (None, each)]
                first, second = ([each[place] for place in places] for each in (ours, theirs))
                strata = [sets[place] for place in places]
                found = paired_bootstrap(first, second, seed=0, strata=strata)
                figure = f"{measure}, {where}, {name or 'every set'}, {way}"
                difference = f"{found.mean:+.3f} ({found.low:+.3f} to {found.high:+.3f})"
                against = f"{difference}, p {found.p:.4f}, {found.questions} questions"
                say(figure, float(np.mean(first)), "mean", against)


Step = Callable[[int, str, Path, str, int], Awaitable[None]]


def _run(step: Step, size: int, engine: str, folder: Path, place: str, questions: int) -> None:
    asyncio.run(step(size, engine, folder, place, questions))  # type: ignore[arg-type]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 20_000])
    parser.add_argument("--engine", choices=["sqlite", "lance"], default="sqlite")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--place", default="", help="a bucket for Lance tables: s3://BUCKET/NAME")
    parser.add_argument("--data", type=Path, help="a folder of data sets")
    parser.add_argument("--indexes", type=Path, help="a folder that keeps their libraries")
    given = parser.parse_args()
    if given.data:
        given.indexes.mkdir(exist_ok=True)
        return asyncio.run(compare_joins(given.data, given.indexes))
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            for step in (measure, ask):  # separate processes, to measure memory
                context = multiprocessing.get_context("spawn")
                place = f"{given.place}/{size}" if given.place else ""
                args = (step, size, given.engine, Path(folder), place, given.questions)
                process = context.Process(target=_run, args=args)
                process.start()
                process.join()
                if process.exitcode:
                    raise SystemExit(process.exitcode)


if __name__ == "__main__":
    main()
