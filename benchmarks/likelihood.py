"""Compare likelihoods with plain ways: one question after 20 documents, 20 questions after one.

    python benchmarks/likelihood.py [--model hf:FOLDER] [--dtype float32|bfloat16] [--rounds 5]

The documents are passages of `examples/licences` as colligate cuts them, of 40 to 400 tokens. The
plain ways are a full pass for each pair and, for the documents, batches of five padded to the
longest; both take the log-softmax of all positions in float32. All ways take turns in one run, on
the same loaded model. Nothing is kept between rounds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colligate.documents.chunking import Structural
from colligate.documents.reading import read_file
from colligate.models.hf.loading import find_source, load_tokenizer
from colligate.models.hf.runtime import Runtime
from colligate.models.hf.score import LikelihoodScorer
from colligate.models.hf.tokenizer import HFTokenizer
from colligate.models.prompts import Prompts
from colligate.models.weights import pull

EXAMPLES = Path(__file__).parent.parent / "examples"
COUNT, SHORTEST, LONGEST, BATCH = 20, 40, 400, 5
LONG_PREFIX = 1000  # tokens, approximately

Pair = tuple[str, str]


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
    scorer = LikelihoodScorer(runtime, prompts)
    texts = list_passages(prompts)
    lines = (EXAMPLES / "questions.jsonl").read_text("utf-8").splitlines()
    questions = ["\nQuestion: " + json.loads(line)["question"] for line in lines]
    prefix = ""
    while len(prompts.encode_literal(prefix)) < LONG_PREFIX:
        prefix += texts.pop() + "\n\n"
    ways: dict[str, Callable[[list[Pair]], list[Any]]] = {
        "together": scorer.score_texts,
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


def print_figure(name: str, value: float, unit: str, against: str) -> None:
    row = {"figure": name, "value": float(f"{value:.3g}"), "unit": unit, "against": against}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="", help="hf:FOLDER (default: small pinned weights)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if not arguments.model:
        print("loading smollm2-135m from its GGUF file takes a while", file=sys.stderr)
    target = arguments.model.removeprefix("hf:") or str(pull("smollm2-135m")["model"])
    measure(target, arguments.dtype, arguments.rounds)
