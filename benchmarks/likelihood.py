"""Compare likelihoods with plain ways: one question after 20 documents, 20 questions after one.

    python benchmarks/likelihood.py [--model hf:FOLDER] [--dtype float32|bfloat16] [--rounds 5]
    python benchmarks/likelihood.py --model gguf:FILE|bundled [--peer PEER/bin/python]
        [--beginning 200] [--data DIR]

The documents are passages of `examples/licences` as colligate cuts them, of 40 to 400 tokens, or
with `--data` those of a question of NQ, of 100 words. The plain ways are a full pass for each pair
and, for the documents, batches of five padded to the longest; both take the log-softmax of all
positions in float32. All ways take turns in one run, on the same loaded model. Nothing is kept
between rounds.

A GGUF file runs by llama.cpp: there the plain ways are a pass for each pair, with logits of the
scored positions alone, and a pass of the prefix with a step for each token after it, as if it were
written. `--peer` adds xllamacpp, which writes it under a grammar (see `peer.py`). There the
documents are also measured after a shared beginning of `--beginning` tokens.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from colligate.concurrency import physical_cores
from colligate.documents.chunking import Structural
from colligate.documents.reading import read_file
from colligate.models.hf.loading import HFTokenizer, find_source, load_tokenizer
from colligate.models.hf.runtime import Runtime
from colligate.models.hf.score import LikelihoodScorer
from colligate.models.llama.api import Context
from colligate.models.llama.engine import ScoreRequest, log_probability
from colligate.models.prompts import Prompts
from colligate.models.weights import pull
from evidence_data import read_records, select_some
from pairs import EXAMPLES, Table, Worker, alternate, compute, divide, find_gguf
from speed import Ours

COUNT, SHORTEST, LONGEST, BATCH = 20, 40, 400, 5
LONG_PREFIX = 1000  # tokens, approximately

BATCH_OF_LLAMA = 256  # as our engine

Pair = tuple[str, str]
IdPair = tuple[list[int], list[int]]
Scored = tuple[float, list[list[float]]]  # seconds, and the values of each pair


def list_passages(prompts: Prompts) -> list[str]:
    """Return passages of the example documents, in a fixed random order."""
    cut = Structural(LONGEST, prompts.token_spans)
    texts = [
        document.slice(span)
        for file in sorted((EXAMPLES / "licences").iterdir())
        for document in read_file(file).documents
        for span in cut(document)
    ]
    random.Random(5).shuffle(texts)
    return [text for text in texts if SHORTEST <= len(prompts.encode_literal(text)) <= LONGEST]


def make_plain_scorer(
    runtime: Runtime, prompts: Prompts, batch: int
) -> Callable[[list[Pair]], list[Any]]:
    """Return a scorer by full passes over `batch` sequences, padded to the same length."""
    torch = runtime.torch

    def score(pairs: list[Pair]) -> list[Any]:
        values = []
        for begin in range(0, len(pairs), batch):
            prefixes = [
                prompts.encode_literal(p, beginning=True) for p, _ in pairs[begin : begin + batch]
            ]
            continuations = [prompts.encode_literal(c) for _, c in pairs[begin : begin + batch]]
            rows = [p + c for p, c in zip(prefixes, continuations, strict=True)]
            longest = max(map(len, rows))
            ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
            there = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
            device = runtime.model.device
            mask = {"attention_mask": there.to(device)} if batch > 1 else {}
            with torch.inference_mode():
                logits = runtime.model(ids.to(device), use_cache=False, **mask).logits
                odds = torch.log_softmax(logits.float(), dim=-1)
            for row, prefix, of in zip(rows, prefixes, odds, strict=True):
                positions = range(len(prefix), len(row))
                values.append([of[p - 1, row[p]].item() for p in positions])
        return values

    return score


def measure(model: str, dtype: str, rounds: int) -> None:
    source = find_source(model)
    prompts = Prompts(HFTokenizer(load_tokenizer(source)), model)
    runtime = Runtime(source, model, context=8192, dtype=dtype)
    scorer = LikelihoodScorer(runtime)

    def score(pairs: list[Pair]) -> list[Any]:
        encode = prompts.encode_literal
        return scorer.score([(encode(p, beginning=True), encode(c)) for p, c in pairs])

    texts = list_passages(prompts)
    lines = (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()
    questions = ["\nQuestion: " + json.loads(line)["question"] for line in lines]
    prefix = ""
    while len(prompts.encode_literal(prefix)) < LONG_PREFIX:
        prefix += texts.pop() + "\n\n"
    ways: dict[str, Callable[[list[Pair]], list[Any]]] = {
        "together": score,
        "separate passes": make_plain_scorer(runtime, prompts, 1),
    }
    padded = {f"padded batches of {BATCH}": make_plain_scorer(runtime, prompts, BATCH)}
    about = f"{Path(model).name}, {str(runtime.model.dtype).removeprefix('torch.')}"
    after_each = [(text, questions[0]) for text in texts[:COUNT]]
    after_one = [(prefix, question) for question in questions[:COUNT]]
    for case, pairs, turns in (
        (f"one question after {COUNT} documents", after_each, ways | padded),
        (f"{COUNT} questions after one prefix", after_one, ways),
    ):
        lengths = [len(prompts.encode_literal(p)) for p, _ in pairs]
        after = len(prompts.encode_literal(pairs[0][1]))
        sizes = f"{min(lengths)}-{max(lengths)} tokens before {after}"
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        values: dict[str, list[Any]] = {}
        for turn in range(rounds + 1):  # the first warms up
            for name, way in turns.items():
                runtime.prefixes.clear()
                began = time.perf_counter()
                values[name] = way(pairs)
                if turn:
                    seconds[name].append(time.perf_counter() - began)
        ours = statistics.median(seconds["together"])
        print_figure(f"likelihood, {case}", ours, "s", f"{about}; {sizes}")
        for name in list(turns)[1:]:
            theirs = statistics.median(seconds[name])
            ratio = statistics.median(
                b / a for a, b in zip(seconds["together"], seconds[name], strict=True)
            )
            goal = "; goal >= 2" if name == "separate passes" and pairs is after_each else ""
            worst = max(
                abs(a - b)
                for one, other in zip(values["together"], values[name], strict=True)
                for a, b in zip(one, other, strict=True)
            )
            print_figure(
                f"{case}: times faster", ratio, "x", f"{name}, {theirs:.2f} s; {about}{goal}"
            )
            print_figure(f"{case}: largest difference", worst, "nats", f"{name}; {about}")


def measure_gguf(arguments: argparse.Namespace) -> None:
    """Measure the ways of llama.cpp."""
    path = find_gguf(arguments.model)
    threads = arguments.threads or physical_cores()
    count, rounds = (3, 2) if arguments.quick else (COUNT, arguments.rounds)
    table = Table(arguments.json)
    ours = Ours(path, threads)
    engine, prompts = ours.engine, ours.prompts
    plain = Context(engine.model, cells=4096, sequences=1, batch=BATCH_OF_LLAMA, outputs=128)
    plain.use_threads(threads)
    texts = list_passages(prompts)[:count]
    lines = (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()
    questions = ["\nQuestion: " + json.loads(line)["question"] for line in lines][:count]
    if arguments.data:
        record = select_some(read_records(arguments.data / "dev" / "nq20_gold_at_9.jsonl.gz"), 1)[0]
        texts = [d["text"] for d in record["documents"]][:count]
        questions[0] = f"\nQuestion: {record['question']}"
    asked = [prompts.encode_literal(question) for question in questions]
    licence = (EXAMPLES / "licences" / "GPL-3.txt").read_text("utf-8")
    prefix = prompts.encode_literal(licence, beginning=True)[
        : 150 if arguments.quick else LONG_PREFIX
    ]
    shared = prefix[: arguments.beginning]
    alone = [(prompts.encode_literal(t, beginning=True), asked[0]) for t in texts]
    following = [(shared + prompts.encode_literal(t), asked[0]) for t in texts]
    others = [(prefix, ids) for ids in asked]

    def together(pairs: list[IdPair]) -> Scored:
        ours.forget()
        began = time.perf_counter()
        requests = [ScoreRequest(before + ids, len(before)) for before, ids in pairs]
        for request in requests:
            engine.submit(request)
        values = [compute(engine, request) for request in requests]
        return time.perf_counter() - began, values

    def separately(pairs: list[IdPair], *, step: int) -> Scored:
        """Read each prefix anew, then `step` of the other tokens in a batch."""
        began = time.perf_counter()
        values = []
        for before, ids in pairs:
            plain.cut(0)
            known, scores, row = 0, [], before + ids
            while known < len(row) - 1:
                free = len(before) - 1 if step == 1 and known < len(before) - 1 else len(row) - 1
                size = step if known >= len(before) - 1 else BATCH_OF_LLAMA
                end = min(known + size, free)
                wanted = [place >= len(before) - 1 for place in range(known, end)]
                plain.decode(row[known:end], range(known, end), [0] * (end - known), wanted)
                scores += [
                    log_probability(plain.logits(place - known), row[place + 1])
                    for place in range(max(known, len(before) - 1), end)
                ]
                known = end
            values.append(scores)
        return time.perf_counter() - began, values

    ways: dict[str, Callable[[list[IdPair]], Scored]] = {
        "together": together,
        "separate passes": partial(separately, step=BATCH_OF_LLAMA),
        "token by token": partial(separately, step=1),
    }
    workers = []
    if arguments.peer:
        script = Path(__file__).parent / "peer.py"
        worker = Worker(arguments.peer, script, path, "--threads", threads, "--context", 4096)
        workers.append(worker)

        def by_peer(pairs: list[IdPair]) -> Scored:
            found = worker.ask("score", pairs=pairs)
            return found["seconds"], found["scores"]

        ways["xllamacpp"] = by_peer
    goals = {
        "separate passes": "goal >= 2",
        "token by token": "goal >= 4",
        "xllamacpp": "goal >= 4",
    }
    for case, pairs in (
        (f"1 question, {count} documents", alone),
        ("the same after a shared beginning", following),
        (f"{count} questions, 1 document", others),
    ):
        lengths = [len(before) for before, _ in pairs]
        sizes = f"{min(lengths)} to {max(lengths)} tokens before {len(pairs[0][1])}"
        found = alternate(
            {name: lambda n, way=way, pairs=pairs: way(pairs) for name, way in ways.items()}, rounds
        )
        taken = {name: [seconds for seconds, _ in results] for name, results in found.items()}
        for name, seconds in taken.items():
            table.say(f"{case}: {name}", seconds, "s", sizes)
        for name in list(ways)[1:]:
            ratio = divide(taken[name], taken["together"])
            goal = f"; {goals[name]}" if pairs is following else ""
            table.say(f"{case}: times faster", ratio, "x", name + goal)
            worst = max(
                abs(a - b)
                for one, other in zip(found["together"][0][1], found[name][0][1], strict=True)
                for a, b in zip(one, other, strict=True)
            )
            table.say(f"{case}: largest difference", [worst], "nats", name)
    plain.close()
    table.close(workers)


def print_figure(name: str, value: float, unit: str, against: str) -> None:
    row = {"figure": name, "value": float(f"{value:.3g}"), "unit": unit, "against": against}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="", help="hf:FOLDER, gguf:FILE, or pinned weights")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to try the script (GGUF)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line (GGUF)")
    parser.add_argument("--threads", type=int, help="default: the physical cores (GGUF)")
    parser.add_argument("--beginning", type=int, default=200, help="shared tokens (GGUF)")
    parser.add_argument("--peer", help="a Python with xllamacpp, see peer.py (GGUF)")
    parser.add_argument("--data", type=Path, help="folder with dev/, for NQ's passages (GGUF)")
    arguments = parser.parse_args()
    if arguments.model and not arguments.model.startswith("hf:"):
        measure_gguf(arguments)
        sys.exit()
    if not arguments.model:
        print("loading smollm2-135m from its GGUF file takes a while", file=sys.stderr)
    target = arguments.model.removeprefix("hf:") or str(pull("smollm2-135m")["model"])
    measure(target, arguments.dtype, arguments.rounds)
