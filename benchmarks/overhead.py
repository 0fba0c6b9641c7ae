"""Measure the engine's own time per question: everything except the model and the embedder.

    python benchmarks/overhead.py [--passages 20000] [--questions 50]

A library of synthetic passages is built once in a temporary folder with random unit vectors; the
model replies at once with a quote that must be located and checked. Model and embedder record their
own time; the rest of a question's time is the engine's: search, prompt, parsing, locating, support,
citations, trace.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from colligate.engine import Engine
from colligate.testing import ScriptedModel

WORDS = 30_000
PASSAGE = 110  # words of a paragraph; one paragraph is one passage
PER_DOCUMENT = 100


class Vectors:
    """Make random unit vectors, and record the seconds that this takes."""

    name = "random"
    dimension = 384

    def __init__(self) -> None:
        self.seconds = 0.0
        self._random = np.random.default_rng(7)

    async def embed(self, texts, kind="passage"):
        began = time.perf_counter()
        vectors = self._random.standard_normal((len(texts), self.dimension), dtype=np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        self.seconds += time.perf_counter() - began
        return vectors

    async def aclose(self) -> None:
        pass


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
    """Write Markdown files of paragraphs with words drawn by Zipf's law; return the words."""
    rng = random.Random(11)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) for _ in range(WORDS)]
    weights = [1 / (rank + 1) for rank in range(WORDS)]
    for number in range(-(-passages // PER_DOCUMENT)):
        count = min(PER_DOCUMENT, passages - number * PER_DOCUMENT)
        paragraphs = [
            " ".join(rng.choices(words, weights, k=PASSAGE)).capitalize() + "."
            for _ in range(count)
        ]
        # A heading above every paragraph, so that each is a passage of its own.
        text = "\n\n".join(f"## Section {i}\n\n{p}" for i, p in enumerate(paragraphs, 1))
        (folder / f"document-{number:05}.md").write_text(f"# Document {number}\n\n{text}\n")
    return words


async def measure(passages: int, questions: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "documents"
        folder.mkdir()
        words = write_documents(folder, passages)
        vectors, model = Vectors(), Quoting()
        async with Engine(model=model, embedder=vectors, library=Path(name) / "library") as engine:
            ingested = await engine.add([folder])
            rng = random.Random(13)
            await engine.ask("warm up " + " ".join(rng.choices(words, k=6)))
            for where, paths in (("library", []), ("paths", [folder])):
                spent, own = [], []
                for _ in range(questions):
                    question = "Which says " + " ".join(rng.choices(words, k=8)) + "?"
                    vectors.seconds = model.seconds = 0.0
                    began = time.perf_counter()
                    answer = await engine.ask(question, paths)
                    whole = time.perf_counter() - began
                    assert answer.found
                    spent.append(whole * 1000)
                    own.append((whole - vectors.seconds - model.seconds) * 1000)
                figures = {
                    f"overhead per question, over the {where}, p50": statistics.median(own),
                    f"overhead per question, over the {where}, p95": sorted(own)[
                        int(len(own) * 0.95)
                    ],
                }
                for figure, value in figures.items():
                    against = f"{ingested.passages} passages; goal < 20 ms"
                    row = {
                        "figure": figure,
                        "value": round(value, 2),
                        "unit": "ms",
                        "against": against,
                    }
                    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--passages", type=int, default=20_000)
    parser.add_argument("--questions", type=int, default=50)
    arguments = parser.parse_args()
    asyncio.run(measure(arguments.passages, arguments.questions))
