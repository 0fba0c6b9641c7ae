"""Measure what the bench adds to an answer: the time of a run minus that of its answers.

    python benchmarks/bench_overhead.py [--questions 200]

Each question has its own 20 documents of 100 words each, and a model that answers at once. The
bench adds: documents from the record, the metrics, the trace, the row on disk. Reading a run of
10,000 rows is timed as well.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from colligate.core.events import Trace
from colligate.lab.bench.corpus import CorpusResolver
from colligate.lab.bench.metrics.groups import Backends
from colligate.lab.bench.outcome import ROWS, Answerer, read_rows
from colligate.lab.bench.plan import configure_entries, plan
from colligate.lab.bench.provenance import RUN, Provenance
from colligate.lab.bench.run import Bench, RunJob
from colligate.lab.bench.suites import parse_suite
from colligate.lab.jobs.job import Job
from colligate.lab.jobs.spending import Spending
from colligate.models import Role
from colligate.testing import ScriptedModel

SUITE = """
title = "Overhead"
[[datasets]]
name = "made"
file = "made.jsonl"
metrics = ["short", "evidence", "citations", "abstention", "cost"]
[[strategies]]
name = "full-context"
"""
REPLY = json.dumps(
    {
        "statements": [{"passage": 3, "quote": "The lamp of", "sentence": "The lamp of it burns."}],
        "short_answer": "oil",
        "found": True,
    }
)


def make_record(number: int, chance: random.Random) -> dict[str, Any]:
    words = ["lamp", "tower", "coast", "keeper", "winter", "harbour", "stone", "oil", "of", "the"]
    documents = [
        {
            "id": f"{number}-{at}",
            "title": f"Tower {number}-{at}",
            "text": f"The lamp of tower {at}. " + " ".join(chance.choices(words, k=95)) + ".",
        }
        for at in range(20)
    ]
    return {
        "id": str(number),
        "question": "What does the lamp burn?",
        "answers": ["oil"],
        "documents": documents,
        "gold_document_ids": [f"{number}-3"],
        "meta": {"gold_position": 3},
    }


async def run(folder: Path, out: Path, *, traces: bool) -> tuple[float, Sequence[float]]:
    """Return the seconds of a run, and those of its answers."""
    suite = parse_suite(SUITE, "made", "made.toml")
    planned = plan(suite, folder, entries=configure_entries(suite))
    answering = Answerer({Role.READER: ScriptedModel(lambda _: REPLY)}, Spending())
    job: RunJob = Job(out, RUN, ROWS, Trace(keep=False), phase="answering")
    record = Provenance("made", SUITE, 0, {}, ("made",), ("full-context",))
    async with CorpusResolver(folder, out / "corpus") as corpora, job.resume(record, {}):
        bench = Bench(planned, answering, corpora, Backends(), traces=traces)
        began = time.perf_counter()
        await bench.run(job)
        seconds = time.perf_counter() - began
    return seconds, [row.outcome.seconds for row in job.results.values()]


def say(figure: str, value: float, unit: str, against: str) -> None:
    print(json.dumps({"figure": figure, "value": value, "unit": unit, "against": against}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--questions", type=int, default=200)
    questions = parser.parse_args().questions
    folder = Path(tempfile.mkdtemp(prefix="bench-"))
    try:
        chance = random.Random(1)
        lines = (json.dumps(make_record(number, chance)) + "\n" for number in range(questions))
        (folder / "made.jsonl").write_text("".join(lines), "utf-8")
        (folder / "warm").mkdir()
        asyncio.run(run(folder, folder / "warm", traces=True))
        for traces in (False, True):
            (folder / f"out-{traces}").mkdir()
            whole, answers = asyncio.run(run(folder, folder / f"out-{traces}", traces=traces))
            added = 1000 * (whole - sum(answers)) / questions
            kept = "with its trace" if traces else "without a trace"
            against = f"below 5; the answer itself {1000 * sum(answers) / questions:.1f} ms"
            say(f"the bench's own time a question, {kept}", round(added, 2), "ms", against)
        many = folder / "many"
        many.mkdir()
        rows = read_rows(folder / "out-True")
        with (many / "rows.jsonl").open("w", encoding="utf-8") as file:
            for number in range(10_000):
                row = replace(rows[number % len(rows)], question=str(number))
                file.write(json.dumps(row.to_json()) + "\n")
        began = time.perf_counter()
        read_rows(many)
        megabytes = (many / "rows.jsonl").stat().st_size / 1e6
        seconds = round(time.perf_counter() - began, 2)
        say("10,000 rows read", seconds, "s", f"{megabytes:.0f} MB")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
