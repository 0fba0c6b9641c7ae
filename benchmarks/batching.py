"""Measure requests answered at once against the same requests in turn.

    python benchmarks/batching.py [--model bundled] [--requests 8] [--read 300] [--written 60]

The requests have different prompts, pieces of the example licences, and write exactly `--written`
tokens each. Tokens a second are the written tokens over the whole time, which includes reading the
prompts. Nothing is kept between rounds. "Without guesses" is without drafting.
"""

from __future__ import annotations

import argparse
import time

from colligate.concurrency import physical_cores
from colligate.models.decoding import GenerationRequest
from pairs import Table, add_options, alternate, compute, divide, find_gguf
from speed import DRAFT, Ours, list_pieces


def answer(
    ours: Ours, prompts: list[list[int]], tokens: int, *, draft: int, at_once: bool
) -> tuple[float, list[str]]:
    """Return the tokens a second of all requests, and the texts."""
    ours.forget()
    engine = ours.engine
    engine._ends, engine._draft = frozenset(), draft
    requests = [GenerationRequest(ids, tokens) for ids in prompts]
    began = time.perf_counter()
    if at_once:
        for request in requests:
            engine.submit(request)
        texts = [compute(engine, request).text for request in requests]
    else:
        texts = []
        for request in requests:
            engine.submit(request)
            texts.append(compute(engine, request).text)
    return len(requests) * tokens / (time.perf_counter() - began), texts


def measure(arguments: argparse.Namespace) -> None:
    requests, read, written = arguments.requests, arguments.read, arguments.written
    rounds = arguments.rounds
    if arguments.quick:
        requests, read, written, rounds = 3, 50, 8, 2
    table = Table(arguments.json)
    ours = Ours(find_gguf(arguments.model), arguments.threads or physical_cores())
    pieces = list_pieces(ours.engine, requests * (rounds + 1), read)
    about = f"{requests} requests, {read} tokens read and {written} written each"
    for case, draft in (("", DRAFT), (", without guesses", 0)):
        found = alternate(
            {
                name: lambda n, at_once=at_once, draft=draft: answer(
                    ours,
                    pieces[n * requests : (n + 1) * requests],
                    written,
                    draft=draft,
                    at_once=at_once,
                )
                for name, at_once in (("at once", True), ("in turn", False))
            },
            rounds,
        )
        speeds = {name: [speed for speed, _ in results] for name, results in found.items()}
        for name, values in speeds.items():
            table.say(f"{name}{case}", values, "tokens/s", about)
        table.say(f"times faster{case}", divide(*speeds.values()), "x", "in turn; goal >= 1.5")
        texts = [[text for _, each in results for text in each] for results in found.values()]
        equal = sum(a == b for a, b in zip(*texts, strict=True)) / len(texts[0])
        table.say(f"equal texts{case}", [equal], "share", "in turn")
    table.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_options(parser, rounds=5)
    parser.add_argument("--requests", type=int, default=8)
    parser.add_argument("--read", type=int, default=300)
    parser.add_argument("--written", type=int, default=60)
    measure(parser.parse_args())
