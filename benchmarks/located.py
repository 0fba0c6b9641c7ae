"""Measure the seconds until a person sees the first located passages, in a large library.

    python benchmarks/located.py --data DIR [--embedder static] [--documents 5000] [--questions 20]

The first documents of PopQA's corpus, one paragraph each, are stored in a fresh library and asked
PopQA's questions through the `Engine`, with `auto` and with `retrieve-read`. The model is scripted
and finds nothing, so the time is that of the search: from `Engine.ask` to the event `located`. The
first question, which opens the library's index, is said by itself. Indexing and opening the
embedder come before, and are not in it.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import statistics
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from colligate import Engine
from colligate.core.events import Event, Located
from colligate.testing import ScriptedModel

NOTHING = json.dumps({"statements": [], "short_answer": "", "found": False})


def read_rows(path: Path, count: int) -> list[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, count)]


def write_documents(rows: list[dict[str, Any]], folder: Path) -> None:
    """Write each paragraph as a file of its own."""
    for row in rows:
        text = f"# {row['title']}\n\n{row['text']}\n"
        (folder / f"{row['id']}.md").write_text(text, encoding="utf-8")


async def time_located(engine: Engine, question: str, strategy: str) -> float:
    """Return the seconds from the question to the first located passages."""
    begun, seen = time.perf_counter(), []

    def listen(event: Event) -> None:
        if isinstance(event, Located):
            seen.append(time.perf_counter() - begun)

    await engine.ask(question, strategy=strategy, on_event=listen)
    if len(seen) != 1:
        raise SystemExit(f"{len(seen)} times passages were located for {question!r}, not once")
    return seen[0]


def say(figure: str, value: float, against: str | None = None) -> None:
    line = {"figure": figure, "value": round(value, 3), "unit": "s", "against": against}
    print(json.dumps(line), flush=True)


async def measure(arguments: argparse.Namespace, folder: Path) -> None:
    files, dev = folder / "files", arguments.data / "dev"
    files.mkdir()
    write_documents(read_rows(dev / "popqa.corpus.jsonl.gz", arguments.documents), files)
    rows = read_rows(dev / "popqa.jsonl.gz", arguments.questions)
    model = ScriptedModel(lambda call: NOTHING)
    begun = time.perf_counter()
    async with Engine(
        library=folder / "library", model=model, embedder=arguments.embedder, reranker="none"
    ) as engine:
        await engine.add([files])
        name = f"{arguments.embedder}, {arguments.documents:,} documents"
        say(f"{name}: indexing", time.perf_counter() - begun)
        for strategy in ("auto", "retrieve-read"):
            times = [await time_located(engine, row["question"], strategy) for row in rows]
            goal = "goal < 1 s"
            say(f"{name}, {strategy}: first question", times[0], goal)
            say(f"{name}, {strategy}: median", statistics.median(times), goal)
            say(f"{name}, {strategy}: slowest", max(times), goal)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="the folder of the data sets")
    parser.add_argument("--embedder", default="static")
    parser.add_argument("--documents", type=int, default=5_000)
    parser.add_argument("--questions", type=int, default=20)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(measure(parser.parse_args(), Path(folder)))


if __name__ == "__main__":
    main()
