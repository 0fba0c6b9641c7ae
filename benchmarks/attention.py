"""Measure time and memory of the last token's attention against the whole matrix and a prefill.

    python benchmarks/attention.py [--lengths 1024 2048 4096 8192] [--model FOLDER] [--dtype auto]
    python benchmarks/attention.py --gguf bundled|FILE [--lengths 4096] [--threads N]

Each figure of time and memory comes from a separate process: its model is loaded and warmed up,
then the peak of its memory is reset, and read again after one pass (Linux only). The whole matrix
is `output_attentions=True` for the prompt; if the machine has too little memory for it, the figure
is null, and the size of its tensors is computed. "The reader" is an answer of 32 tokens to the same
messages after their attention was measured, with the pass remembered and forgotten.

`--gguf` measures llama.cpp instead: `LlamaCpp.attention` against a chat of one token with the same
messages, in turns on one loaded model, each with a text of its own so that nothing of it is known;
and what the first call of each adds to the memory of a process of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import gc
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

from colligate.models import ChatRequest, Message
from colligate.models.llama.model import LlamaCpp
from colligate.models.weights import pull
from pairs import Table, divide, find_gguf

WAYS = ("attention", "whole matrix", "prefill")
READER = "reader"
SPANS = 20
ANSWER = 32
WORDS = """river treaty bridge otter signed water house people found early museum river station
language known family film south north island music system history church county school army
company village season second several national university century population government""".split()


def make_prompt(prompts, length: int) -> str:
    """Return a text of about `length` tokens."""
    text = " ".join(random.Random(length).choices(WORDS, k=length))
    return text[: prompts.token_spans(text)[length - 1][1]]


def split_spans(text: str) -> list[tuple[int, int]]:
    step = len(text) // SPANS
    return [(at, at + step) for at in range(0, step * SPANS, step)]


def read_memory(field: str) -> int:
    """Return the bytes of this process: VmRSS is the current value, VmHWM the peak."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def reset_most() -> None:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory left from loading would hide the figure
    Path("/proc/self/clear_refs").write_text("5")


def measure(way: str, length: int, target: str, dtype: str, repeats: int) -> dict:
    """Measure the median seconds of one way on one prompt, and its bytes above the loaded model."""
    from colligate.models.hf.loading import (
        HFTokenizer,
        find_source,
        import_transformers,
        load_tokenizer,
    )
    from colligate.models.hf.model import compute_row
    from colligate.models.hf.runtime import Runtime
    from colligate.models.local import read_question
    from colligate.models.prompts import Prompts

    import_transformers()
    source = find_source(target)
    runtime = Runtime(source, target, context=1 << 20, dtype=dtype)
    prompts = Prompts(HFTokenizer(load_tokenizer(source)), target)

    def by_attention(text: str) -> list[float]:
        runtime.prefixes.clear()
        ids, first, average = read_question(prompts, text, split_spans(text), None)
        return average(compute_row(runtime, ids, first))

    def by_prefill(text: str) -> None:
        with runtime.inference():
            runtime.forward(prompts.encode_question(text)[0], runtime.new_cache())

    def by_matrix(text: str) -> list[float]:
        ids, covered = prompts.encode_question(text)
        with runtime.inference(), runtime.use_attention("eager"):
            layers = runtime.forward(ids, output_attentions=True).attentions
            row = runtime.torch.stack([layer[0, :, -1].float().mean(0) for layer in layers])
            masses = row.mean(0).tolist()
        return [
            statistics.fmean(
                m for m, (a, b) in zip(masses, covered, strict=True) if max(a, start) < min(b, end)
            )
            for start, end in split_spans(text)
        ]

    look = dict(zip(WAYS, (by_attention, by_matrix, by_prefill), strict=True))[way]
    config = runtime.model.config.get_text_config()
    text = make_prompt(prompts, length)
    tokens = len(prompts.encode_question(text)[0])
    one = config.num_attention_heads * tokens**2
    size = runtime.model.dtype.itemsize
    found = {
        "tokens": tokens,
        "dtype": str(runtime.model.dtype).removeprefix("torch."),
        "needed": one * config.num_hidden_layers * size,
    }
    # All layers are kept until the end, and in addition the float32 softmax of one.
    if way == "whole matrix" and found["needed"] + one * (size + 8) > 0.9 * read_available():
        return {**found, "available": read_available()}
    look(make_prompt(prompts, 64))
    seconds, most = [], 0
    for _ in range(repeats):
        reset_most()
        before = read_memory("VmRSS")
        took, result = time_call(look, text)
        seconds.append(took)
        most = max(most, read_memory("VmHWM") - before)
    found |= {"seconds": statistics.median(seconds), "bytes": most, "result": result}
    if way == "prefill":
        # In turns and in one process, so that other work on the machine slows both equally.
        by_attention(text)
        turns = [
            time_call(by_attention, text)[0] / time_call(look, text)[0] for _ in range(repeats)
        ]
        found["attention"] = statistics.median(turns)
    return found


def time_call(call, *given) -> tuple:
    """Return the seconds of a call, and its result."""
    began = time.perf_counter()
    result = call(*given)
    return time.perf_counter() - began, result


def read_available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable"):
            return int(line.split()[1]) * 1024
    raise LookupError("MemAvailable")


async def read(length: int, target: str, dtype: str, repeats: int) -> dict:
    """Measure attention and an answer, with the pass of the attention remembered and forgotten."""
    from colligate.models.hf.model import HFModel

    model = HFModel(target, name=target, dtype=dtype, context_tokens=length + 1024)
    parts = model._parts
    found = {}
    with_it, without = [], []
    for turn in range(repeats + 1):
        prompts = await parts.compute(lambda _: parts.prompts())
        text = make_prompt(prompts, length if turn else 64)
        for forget, seconds in ((False, with_it), (True, without)):
            await parts.compute(lambda _: parts.runtime().prefixes.clear())
            began = time.perf_counter()
            await model.attention([Message("user", text)], split_spans(text))
            if forget:
                await parts.compute(lambda _: parts.runtime().prefixes.clear())
            reply = await model.chat(ChatRequest([Message("user", text)], max_tokens=ANSWER))
            if turn:  # the first warms up
                seconds.append(time.perf_counter() - began)
                found["cached without" if forget else "cached with"] = reply.usage.cached_tokens
                found |= {"tokens": reply.usage.input_tokens, "answer": reply.usage.output_tokens}
    await model.aclose()
    return {**found, "with": statistics.median(with_it), "without": statistics.median(without)}


def measure_in_process(way: str, length: int, arguments: argparse.Namespace) -> dict:
    command = [sys.executable, __file__, "--measure", way, "--lengths", str(length)]
    command += ["--model", arguments.model, "--dtype", arguments.dtype]
    command += ["--repeats", str(1 if way == "whole matrix" else arguments.repeats)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def say(figure: str, value: float | None, unit: str, against: str) -> None:
    rounded = None if value is None else float(f"{value:.3g}")
    row = {"figure": figure, "value": rounded, "unit": unit, "against": against}
    print(json.dumps(row), flush=True)


def report(length: int, found: dict[str, dict]) -> None:
    attention, matrix, prefill = (found[way] for way in WAYS)
    against = f"{attention['tokens']} tokens, {attention['dtype']}"
    needed = f"its attention alone takes {matrix['needed'] / 1e6:.0f} MB"
    for way in WAYS:
        there = "" if way != "whole matrix" else f"; {needed}"
        if "seconds" not in found[way]:
            there += f", {found[way]['available'] / 1e6:.0f} MB are free"
        value, most = found[way].get("seconds"), found[way].get("bytes")
        say(f"{way}, {length} tokens, time", value, "s", against)
        say(
            f"{way}, {length} tokens, memory above the model",
            most and most / 1e6,
            "MB",
            against + there,
        )
    ratio = matrix["seconds"] / attention["seconds"] if "seconds" in matrix else None
    say(f"time of the whole matrix, {length} tokens", ratio, "x", "attention; goal >= 3 at 4k")
    how = "attention" if "bytes" in matrix else "attention; computed, not measured"
    ratio = matrix.get("bytes", matrix["needed"]) / attention["bytes"]
    say(f"memory of the whole matrix, {length} tokens", ratio, "x", f"{how}; goal >= 5 at 4k")
    against = "plain prefill, in turns; goal <= 1.15"
    say(f"time of attention, {length} tokens", prefill["attention"], "x", against)
    if "result" in matrix:
        pairs = zip(attention["result"], matrix["result"], strict=True)
        furthest = max(abs(a - b) for a, b in pairs) / max(matrix["result"])
        say(f"largest difference, {length} tokens", furthest, "x", "the highest span's mean")


def measure_gguf(arguments: argparse.Namespace) -> None:
    """Measure attention and a plain prefill by llama.cpp: time in turns, then memory."""
    path, table = find_gguf(arguments.gguf), Table(arguments.json)
    for length in arguments.lengths:
        taken = asyncio.run(time_gguf(path, length, arguments.threads, arguments.repeats))
        for name, seconds in taken.items():
            table.say(f"{name}, {length} tokens", seconds, "s")
        ratio = divide(taken["attention"], taken["prefill"])
        table.say(f"time of attention, {length} tokens", ratio, "x", "prefill; goal <= 1.3")
        for name in LOOKS:
            command = [sys.executable, __file__, "--gguf", str(path), "--lengths", str(length)]
            command += ["--measure", name]
            command += ["--threads", str(arguments.threads)] if arguments.threads else []
            done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
            found = json.loads(done.stdout.splitlines()[-1])
            for what, size in found.items():
                table.say(f"{name}, {length} tokens, memory, {what}", [size / 1e6], "MB")
    table.close()


async def time_gguf(
    path: Path, length: int, threads: int | None, repeats: int
) -> dict[str, list[float]]:
    """Return the seconds of each way, in turns, after one that warms up."""
    model = LlamaCpp(path, name=path.name, threads=threads)
    names = list(LOOKS)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(repeats + 1):
        for name in names if turn % 2 else names[::-1]:
            text = await make_text(model, length if turn else 64, seed=f"{turn} {name}")
            began = time.perf_counter()
            await LOOKS[name](model, text)
            if turn:
                taken[name].append(time.perf_counter() - began)
    await model.aclose()
    return taken


async def measure_gguf_memory(way: str, length: int, path: Path, threads: int | None) -> dict:
    """Return the growth of this process over the model with a short chat behind it."""
    model = LlamaCpp(path, name=path.name, threads=threads)
    await look_by_prefill(model, await make_text(model, 64, seed="short"))
    text = await make_text(model, length, seed="long")
    reset_most()
    before = read_memory("VmRSS")
    await LOOKS[way](model, text)
    found = {"peak": read_memory("VmHWM") - before, "afterwards": read_memory("VmRSS") - before}
    await model.aclose()
    return found


async def make_text(model: LlamaCpp, length: int, seed: str) -> str:
    """Return a text of `length` tokens that begins unlike others."""
    text = " ".join(random.Random(seed).choices(WORDS, k=length))
    return text[: (await model.token_spans(text))[length - 1][1]]


async def look_by_attention(model: LlamaCpp, text: str) -> None:
    await model.attention([Message("user", text)], split_spans(text))


async def look_by_prefill(model: LlamaCpp, text: str) -> None:
    await model.chat(ChatRequest([Message("user", text)], max_tokens=1))


LOOKS = {"attention": look_by_attention, "prefill": look_by_prefill}


def main(arguments: argparse.Namespace) -> None:
    for length in arguments.lengths:
        report(length, {way: measure_in_process(way, length, arguments) for way in WAYS})
    found = measure_in_process(READER, min(4096, max(arguments.lengths)), arguments)
    against = f"{found['tokens']} tokens, answer of {found['answer']}"
    for which, name in (("with", "remembered"), ("without", "forgotten")):
        again = f"{against}; {found[f'cached {which}']} tokens not read again"
        say(f"attention and answer, pass {name}", found[which], "s", again)
    ratio = found["without"] / found["with"]
    say("attention and answer, pass forgotten", ratio, "x", "remembered")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192])
    parser.add_argument("--model", help="folder or .gguf file (default: the tests' small model)")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--repeats", type=int, default=3, help="the figures are medians of these")
    parser.add_argument("--measure", choices=(*WAYS, READER, *LOOKS), help=argparse.SUPPRESS)
    parser.add_argument("--gguf", help="a GGUF file or pinned weights, run by llama.cpp")
    parser.add_argument("--threads", type=int, help="default: the physical cores (--gguf)")
    parser.add_argument("--json", action="store_true", help="print JSON objects (--gguf)")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try it (--gguf)")
    given = parser.parse_args()
    if given.quick:
        given.lengths, given.repeats = [256], 2
    if given.gguf:
        if given.measure:
            file = find_gguf(given.gguf)
            grown = measure_gguf_memory(given.measure, given.lengths[0], file, given.threads)
            print(json.dumps(asyncio.run(grown)))
        else:
            measure_gguf(given)
        sys.exit()
    given.model = given.model or str(pull("smollm2-135m")["model"])
    settings = (given.lengths[0], given.model, given.dtype, given.repeats)
    if given.measure is None:
        main(given)
    elif given.measure == READER:
        print(json.dumps(asyncio.run(read(*settings))))
    else:
        print(json.dumps(measure(given.measure, *settings)))
