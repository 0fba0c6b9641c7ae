"""Measure the settings of llama.cpp: tokens in a batch, types of the cache, threads.

    python benchmarks/llama_settings.py [--model bundled] [--read 1500] [--written 60] [--rounds 3]

Each setting reads the same piece of a licence and writes the likeliest tokens after it, one by one.
Beside the speeds stands what it changes: the share of written tokens that equal those of the first
setting, and the largest difference of a log-probability after the piece was read.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colligate.concurrency import physical_cores
from colligate.models.llama.api import Context, Model, load_library
from colligate.models.llama.libraries import pull_libraries
from pairs import EXAMPLES, Table, add_options, alternate, divide, find_gguf

F32, F16, Q8_0 = 0, 1, 8  # ggml's numbers of the types
WINDOW = 4096


class WithCache:
    """llama.cpp with another type of the cache of keys and values."""

    def __init__(self, library: Any, kind: int) -> None:
        self._library, self._kind = library, kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def llama_context_default_params(self) -> Any:
        params = self._library.llama_context_default_params()
        params.type_k = params.type_v = self._kind
        return params


@dataclass(frozen=True)
class Written:
    """What one setting wrote, its speeds in tokens a second, and what followed the piece."""

    tokens: list[int]
    reading: float
    writing: float
    log_probabilities: NDArray[np.float64]


class Setting:
    """A context with its settings."""

    def __init__(self, model: Model, *, batch: int, kind: int, threads: int) -> None:
        plain = model.library
        model.library = WithCache(plain, kind)
        self._context = Context(model, cells=WINDOW, sequences=1, batch=batch, outputs=1)
        model.library = plain
        self._context.use_threads(threads)
        self._batch = batch

    def write(self, ids: list[int], count: int) -> Written:
        context = self._context
        context.cut(0)
        began = time.perf_counter()
        for start in range(0, len(ids), self._batch):
            part = ids[start : start + self._batch]
            last = start + len(part) == len(ids)
            wanted = [False] * (len(part) - 1) + [last]
            positions = range(start, start + len(part))
            context.decode(part, positions, [0] * len(part), wanted)
        logits = context.logits(-1).astype(np.float64)
        read = time.perf_counter()
        tokens = [int(logits.argmax())]
        while len(tokens) < count:
            context.decode(tokens[-1:], [len(ids) + len(tokens) - 1], [0], [True])
            tokens.append(int(context.logits(0).argmax()))
        written = time.perf_counter()
        odds = logits - logits.max()
        odds -= np.log(np.exp(odds).sum())
        return Written(tokens, len(ids) / (read - began), (count - 1) / (written - read), odds)


def measure(arguments: argparse.Namespace) -> None:
    model = Model(load_library(pull_libraries()), find_gguf(arguments.model))
    read, written, rounds = arguments.read, arguments.written, arguments.rounds
    if arguments.quick:
        read, written, rounds = 200, 8, 1
    cores = physical_cores()
    make = partial(Setting, model, batch=256, kind=F16, threads=cores)
    settings = {
        f"batches of 256, float16, {cores} threads": make(),
        "the same again": make(),
        "1 thread": make(threads=1),
        **{f"batches of {size}": make(batch=size) for size in (64, 128, 512, 1024)},
        "float32 cache": make(kind=F32),
        "q8_0 cache": make(kind=Q8_0),
    }
    text = "\n\n".join(p.read_text("utf-8") for p in sorted((EXAMPLES / "licences").iterdir()))
    ids = model.tokenize(text)
    pieces = [ids[start * read : (start + 1) * read] for start in range(rounds + 1)]
    table = Table(arguments.json)
    found = alternate(
        {
            name: lambda n, each=each: each.write(pieces[n], written)
            for name, each in settings.items()
        },
        rounds,
    )
    first, *others = found
    table.say(f"reading, {first}", [a.reading for a in found[first]], "tokens/s")
    table.say(f"writing, {first}", [a.writing for a in found[first]], "tokens/s")
    for name in others:
        for what in ("reading", "writing"):
            mine, theirs = ([getattr(a, what) for a in found[each]] for each in (name, first))
            table.say(f"{what}, {name}", divide(mine, theirs), "x", first)
        pairs = list(zip(found[name], found[first], strict=True))
        same = [
            np.mean([x == y for x, y in zip(a.tokens, b.tokens, strict=True)]) for a, b in pairs
        ]
        table.say(f"equal tokens, {name}", [float(each) for each in same], "share", first)
        apart = [float(np.abs(a.log_probabilities - b.log_probabilities).max()) for a, b in pairs]
        table.say(f"log-probabilities apart, {name}", apart, "nats", first)
    table.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_options(parser, rounds=3)
    parser.add_argument("--read", type=int, default=1500)
    parser.add_argument("--written", type=int, default=60)
    measure(parser.parse_args())
