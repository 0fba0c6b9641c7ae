"""Measure the speed of a model in this process: reading, writing, many calls, scoring.

    python benchmarks/speed.py [--model bundled] [--read 1500] [--written 100] [--quick]

--model is bundled, pinned weights, gguf: or hf:, and --quick takes small sizes, to try the script.
Prompts are pieces of the example licences that begin differently, so nothing is known of them.

- reading: prompt tokens a second up to the first token; writing: tokens a second after it
- at once: 8 requests made together against the same number in turn, in written tokens a second
- attention: the attention of a question to a prompt against the plain reading of another
- likelihood: one question after each of 20 passages, together against one by one

The ways of a ratio take turns, and a figure is the median of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from colligate.models import ChatRequest, Message
from colligate.models.names import open_model
from results import read_arguments, say

LICENCES = Path(__file__).parents[1] / "examples" / "licences"
ASK = "Write down everything that these pages say, word for word, from the beginning:\n\n"
QUESTION = "Which paragraph says when a terminated licence is reinstated?"


class Pieces:
    """Cut pieces of a number of tokens from the licences, each from another place."""

    def __init__(self, text: str, spans: list[tuple[int, int]]) -> None:
        self._text, self._spans, self._chance = text, spans, random.Random(7)

    def draw(self, tokens: int) -> str:
        """Return a piece."""
        first = self._chance.randrange(len(self._spans) - tokens)
        return self._text[self._spans[first][0] : self._spans[first + tokens - 1][1]]


async def chat(model: Any, piece: str, tokens: int) -> tuple[float, float, int, int]:
    """Return the seconds to the first token and to the end, the tokens read and written."""
    first: list[float] = []
    began = time.perf_counter()

    def note(_: str) -> None:
        first.append(time.perf_counter() - began)

    request = ChatRequest([Message("user", ASK + piece)], max_tokens=tokens)
    reply = await model.chat(request, note)
    whole = time.perf_counter() - began
    return first[0], whole, reply.usage.input_tokens, reply.usage.output_tokens


async def measure_answers(model: Any, pieces: Pieces, given: argparse.Namespace) -> None:
    """Print how fast a prompt is read and an answer written."""
    rows = [
        await chat(model, pieces.draw(given.read), given.written) for _ in range(given.rounds + 1)
    ][1:]
    sizes = f"{rows[0][2]} tokens read, {min(row[3] for row in rows)} or more written"
    say("reading", median(read / first for first, _, read, _ in rows), "tokens/s", sizes)
    writing = [(written - 1) / (whole - first) for first, whole, _, written in rows]
    say("writing", median(writing), "tokens/s", sizes)
    say("the whole answer", median(row[1] for row in rows), "s", sizes)


async def alternate(ways: Mapping[str, Callable[[], Awaitable[float]]], rounds: int) -> list[float]:
    """Return the ratio of the second way to the first in each round, after one that warms up."""
    ratios = []
    for number in range(rounds + 1):
        names = list(ways) if number % 2 else list(ways)[::-1]
        found = {name: await ways[name]() for name in names}
        first, second = (found[name] for name in ways)
        ratios.append(second / first)
    return ratios[1:]


async def measure_at_once(model: Any, pieces: Pieces, given: argparse.Namespace) -> None:
    """Print what requests gain that are made together."""
    count, read, written = (3, 50, 8) if given.quick else (8, 300, 60)

    async def ask(at_once: bool) -> float:
        prompts = [pieces.draw(read) for _ in range(count)]
        began = time.perf_counter()
        if at_once:
            rows = await asyncio.gather(*(chat(model, each, written) for each in prompts))
        else:
            rows = [await chat(model, each, written) for each in prompts]
        return (time.perf_counter() - began) / sum(row[3] for row in rows)

    ratios = await alternate(
        {"at once": lambda: ask(True), "in turn": lambda: ask(False)}, given.rounds
    )
    say(f"{count} requests at once against in turn", median(ratios), "x", f"{read} tokens read")


async def measure_attention(model: Any, pieces: Pieces, given: argparse.Namespace) -> None:
    """Print what the attention of a question takes beside a plain reading."""
    tokens = 256 if given.quick else 4096

    async def read() -> float:
        return (await chat(model, pieces.draw(tokens), 1))[1]

    async def look() -> float:
        text = f"{pieces.draw(tokens)}\n\n{QUESTION}"
        spans = [(at, min(at + 800, len(text))) for at in range(0, len(text), 800)]
        began = time.perf_counter()
        await model.attention(text, spans)
        return time.perf_counter() - began

    ratios = await alternate({"reading": read, "attention": look}, given.rounds)
    say(f"attention over {tokens} tokens against reading", median(ratios), "x", "goal <= 1.3")


async def measure_likelihood(model: Any, pieces: Pieces, given: argparse.Namespace) -> None:
    """Print what likelihoods gain that are asked for together."""
    count = 4 if given.quick else 20

    async def score(together: bool) -> float:
        pairs = [(pieces.draw(120) + "\n\n", QUESTION) for _ in range(count)]
        began = time.perf_counter()
        for some in [pairs] if together else [[pair] for pair in pairs]:
            await model.likelihoods(some)
        return time.perf_counter() - began

    ratios = await alternate(
        {"together": lambda: score(True), "one by one": lambda: score(False)}, given.rounds
    )
    say(f"likelihoods of {count} passages, together against one by one", median(ratios), "x")


async def measure(given: argparse.Namespace) -> None:
    """Print all figures of a model."""
    if given.quick:
        given.read, given.written, given.rounds = 200, 12, 2
    name = given.model if ":" in given.model or given.model == "bundled" else f"gguf:{given.model}"
    model: Any = open_model(name)
    text = "\n\n".join(path.read_text("utf-8") for path in sorted(LICENCES.iterdir()))[:100_000]
    pieces = Pieces(text, await model.token_spans(text))
    for part in (measure_answers, measure_at_once, measure_attention, measure_likelihood):
        await part(model, pieces, given)
    await model.aclose()


if __name__ == "__main__":
    options = {"model": "bundled", "read": 1500, "written": 100, "rounds": 3, "quick": False}
    asyncio.run(measure(read_arguments(__doc__, **options)))
