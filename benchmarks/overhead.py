"""Measure the time that colligate itself takes: the engine a question, and the bench an answer.

    python benchmarks/overhead.py [--passages 20000] [--questions 50]
    python benchmarks/overhead.py --bench [--questions 200]

A library of synthetic passages is built once with random unit vectors; the model replies at once
with a quote that must be located and checked. Model and embedder record their own time; the rest of
a question's time is the engine's. With `--bench` each question has 20 documents of 100 words: what
is left of a run without its answers is the bench's (documents, metrics, trace, row on disk).
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chance import RandomVectors, Words
from colligate.core.events import Trace
from colligate.engine import Engine
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
from results import read_arguments, say

PASSAGE = 110  # words of a paragraph; one paragraph is one passage
PER_DOCUMENT = 100


class Vectors(RandomVectors):
    """Record the seconds that the vectors take."""

    seconds = 0.0

    async def embed(self, texts, kind="passage"):
        began = time.perf_counter()
        vectors = await super().embed(texts, kind)
        self.seconds += time.perf_counter() - began
        return vectors


class Quoting(ScriptedModel):
    """Quote the middle of the first passage shown, and record the seconds that this takes."""

    def __init__(self) -> None:
        super().__init__(self._quote)
        self.seconds = 0.0

    def _quote(self, call) -> str:
        body = re.search(r"<passage .*?>\n(.*?)\n</passage", call.prompt, re.DOTALL)
        words = body.group(1).split()[20:40] if body else []
        quote = " ".join(words)
        statement = {"passage": 1, "quote": quote, "sentence": quote}
        return json.dumps({"statements": [statement], "short_answer": "", "found": True})

    async def chat(self, request, on_token=None):
        began = time.perf_counter()
        try:
            return await super().chat(request, on_token)
        finally:
            self.seconds += time.perf_counter() - began


def write_documents(folder: Path, passages: int) -> list[str]:
    """Write Markdown files of paragraphs; return their vocabulary."""
    words = Words()
    for number in range(-(-passages // PER_DOCUMENT)):
        count = min(PER_DOCUMENT, passages - number * PER_DOCUMENT)
        paragraphs = [words.draw(PASSAGE).capitalize() + "." for _ in range(count)]
        # A heading above every paragraph, so that each is a passage of its own.
        text = "\n\n".join(f"## Section {i}\n\n{p}" for i, p in enumerate(paragraphs, 1))
        (folder / f"document-{number:05}.md").write_text(f"# Document {number}\n\n{text}\n")
    return words.known


async def measure(passages: int, questions: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "documents"
        folder.mkdir()
        words = write_documents(folder, passages)
        vectors, model = Vectors(), Quoting()
        async with Engine(
            model=model, embedder=vectors, reranker="none", library=Path(name) / "library"
        ) as engine:
            ingested = await engine.add([folder])
            rng = random.Random(13)
            await engine.ask("warm up " + " ".join(rng.choices(words, k=6)))
            for where, paths in (("library", []), ("paths", [folder])):
                own = []
                for _ in range(questions):
                    question = "Which says " + " ".join(rng.choices(words, k=8)) + "?"
                    vectors.seconds = model.seconds = 0.0
                    began = time.perf_counter()
                    answer = await engine.ask(question, paths)
                    whole = time.perf_counter() - began
                    assert answer.found
                    own.append((whole - vectors.seconds - model.seconds) * 1000)
                against = f"{ingested.passages} passages; goal < 20 ms"
                what = f"overhead per question, over the {where}"
                say(f"{what}, p50", statistics.median(own), "ms", against)
                say(f"{what}, p95", sorted(own)[int(len(own) * 0.95)], "ms", against)


# The bench

SUITE = """
title = "Overhead"
[[datasets]]
name = "made"
file = "made.jsonl"
metrics = ["short", "evidence", "citations", "abstention", "cost"]
[[strategies]]
name = "full-context"
"""
STATED = {"passage": 3, "quote": "The lamp of", "sentence": "The lamp of it burns."}
REPLY = json.dumps({"statements": [STATED], "short_answer": "oil", "found": True})


def make_record(number: int, chance: random.Random) -> dict[str, Any]:
    words = ["lamp", "tower", "coast", "keeper", "winter", "harbour", "stone", "oil", "of", "the"]
    texts = (
        f"The lamp of tower {at}. {' '.join(chance.choices(words, k=95))}." for at in range(20)
    )
    documents = [
        {"id": f"{number}-{at}", "title": f"Tower {number}-{at}", "text": text}
        for at, text in enumerate(texts)
    ]
    return {
        "id": str(number),
        "question": "What does the lamp burn?",
        "answers": ["oil"],
        "documents": documents,
        "gold_document_ids": [f"{number}-3"],
        "meta": {"gold_position": 3},
    }


async def run(folder: Path, out: Path) -> tuple[float, Sequence[float]]:
    """Return the seconds of a run, and those of its answers."""
    suite = parse_suite(SUITE, "made", "made.toml")
    planned = plan(suite, folder, entries=configure_entries(suite))
    answering = Answerer(Spending(), models={Role.READER: ScriptedModel(lambda _: REPLY)})
    job: RunJob = Job(out, RUN, ROWS, Trace(keep=False), phase="answering")
    record = Provenance("made", SUITE, 0, {}, ("made",), ("full-context",))
    async with CorpusResolver(folder, out / "corpus") as corpora, job.resume(record, {}):
        bench = Bench(planned, answering, corpora, Backends())
        began = time.perf_counter()
        await bench.run(job)
        seconds = time.perf_counter() - began
    return seconds, [row.outcome.seconds for row in job.results.values()]


def measure_bench(folder: Path, questions: int) -> None:
    """Print what the bench adds to an answer, and how long 10,000 rows are read."""
    chance = random.Random(1)
    lines = (json.dumps(make_record(number, chance)) + "\n" for number in range(questions))
    (folder / "made.jsonl").write_text("".join(lines), "utf-8")
    for name in ("warm", "out"):
        (folder / name).mkdir()
        whole, answers = asyncio.run(run(folder, folder / name))
    against = f"goal < 5; the answer itself {1000 * sum(answers) / questions:.1f} ms"
    added = 1000 * (whole - sum(answers)) / questions
    say("the bench's own time a question", added, "ms", against)
    many, rows = folder / "many", read_rows(folder / "out")
    many.mkdir()
    with (many / "rows.jsonl").open("w", encoding="utf-8") as file:
        for number in range(10_000):
            row = replace(rows[number % len(rows)], question=str(number))
            file.write(json.dumps(row.to_json()) + "\n")
    began = time.perf_counter()
    read_rows(many)
    megabytes = (many / "rows.jsonl").stat().st_size / 1e6
    say("10,000 rows read", time.perf_counter() - began, "s", f"{megabytes:.0f} MB")


if __name__ == "__main__":
    given = read_arguments(__doc__, passages=20_000, questions=int, bench=False)
    if given.bench:
        with tempfile.TemporaryDirectory() as folder:
            measure_bench(Path(folder), given.questions or 200)
    else:
        asyncio.run(measure(given.passages, given.questions or 50))
