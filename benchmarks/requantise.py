"""Requantise a GGUF file, and measure what its likelihoods lose.

    python benchmarks/requantise.py --data DIR [--model bundled] [--format Q4_0] [--questions 200]
    python benchmarks/requantise.py --data DIR --model FILE_A --compare FILE_B

200 questions of NQ with the passage that has the answer: the log-probability of the first known
answer after passage and question, and of the question after the passage as DuQUAD scores it, under
both files. Printed are the means and the difference in nats for each text and for each token, with
the 95% interval of a paired bootstrap over questions.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes as c
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from colligate.errors import ServerFailed
from colligate.models.llama.api import load_library
from colligate.models.llama.libraries import find_library_file, pull_libraries
from colligate.models.llama.model import LlamaCpp
from evidence_data import read_records, select_some
from pairs import find_gguf

FORMATS = {"Q4_0": 2, "Q4_1": 3, "Q8_0": 7, "Q4_K_M": 15, "IQ4_NL": 25}  # `llama_ftype`
SAMPLES = 10_000
PAIRS = 20  # in one call


class QuantizeParams(c.Structure):
    """`llama_model_quantize_params`."""

    _fields_ = (
        ("nthread", c.c_int32),
        ("ftype", c.c_int),
        ("output_tensor_type", c.c_int),
        ("token_embedding_type", c.c_int),
        ("allow_requantize", c.c_bool),
        ("quantize_output_tensor", c.c_bool),
        ("only_copy", c.c_bool),
        ("pure", c.c_bool),
        ("keep_split", c.c_bool),
        ("dry_run", c.c_bool),
        ("imatrix", c.c_void_p),
        ("kv_overrides", c.c_void_p),
        ("tt_overrides", c.c_void_p),
        ("prune_layers", c.c_void_p),
        ("max_buf_size", c.c_size_t),
    )


def requantise(path: Path, folder: Path, name: str) -> Path:
    """Write the weights in another format, and return the file."""
    folder_of_llama = pull_libraries()
    load_library(folder_of_llama)  # with its backends
    library = c.CDLL(str(find_library_file(folder_of_llama, "llama")))
    library.llama_model_quantize_default_params.restype = QuantizeParams
    library.llama_model_quantize.argtypes = c.c_char_p, c.c_char_p, c.POINTER(QuantizeParams)
    params = library.llama_model_quantize_default_params()
    params.ftype = FORMATS[name]
    params.allow_requantize = True
    target = folder / f"{path.stem}-{name}.gguf"
    code = library.llama_model_quantize(os.fsencode(path), os.fsencode(target), c.byref(params))
    if code:
        raise ServerFailed(f"cannot requantise {path}", f"llama.cpp's result {code}")
    return target


async def score(path: Path, pairs: list[tuple[str, str]]) -> list[list[float]]:
    model = LlamaCpp(path, name=path.name, context_tokens=4096)
    found = []
    for start in range(0, len(pairs), PAIRS):
        found += await model.likelihoods(pairs[start : start + PAIRS])
    await model.aclose()
    return found


def measure(first: Path, second: Path, arguments: argparse.Namespace) -> None:
    count = 4 if arguments.quick else arguments.questions
    file = arguments.data / "dev" / "nq20_gold_at_9.jsonl.gz"
    pairs = []
    for record in select_some(read_records(file), count):
        gold = record["gold_document_ids"][0]
        text = next(d["text"] for d in record["documents"] if d["id"] == gold)
        asked = f"{text}\n\nQuestion: {record['question']}"
        # One after the other: both read the passage.
        pairs.append((f"{asked}\nAnswer:", f" {record['answers'][0]}"))
        pairs.append((f"{text}\n\nQuestion: ", record["question"]))
    scored = [asyncio.run(score(path, pairs)) for path in (first, second)]
    for place, what in enumerate(("answer", "question")):
        of = [each[place::2] for each in scored]
        report(f"log-probability of the {what}", of, first.name, second.name, arguments.json)


def report(
    what: str, scored: list[list[list[float]]], first: str, second: str, as_json: bool
) -> None:
    """Print the means of both files and the interval of their difference."""
    sums = np.array([[sum(tokens) for tokens in each] for each in scored])
    sizes = np.array([len(tokens) for tokens in scored[0]])
    chosen = np.random.default_rng(5).integers(0, len(sizes), (SAMPLES, len(sizes)))
    change = sums[1] - sums[0]
    for unit, means, samples in (
        ("a text", sums.mean(1), change[chosen].mean(1)),
        ("a token", sums.sum(1) / sizes.sum(), change[chosen].sum(1) / sizes[chosen].sum(1)),
    ):
        low, high = np.quantile(samples, (0.025, 0.975))
        row = {
            "figure": f"{what}, {unit}",
            "unit": "nats",
            "first": round(float(means[0]), 4),
            "second": round(float(means[1]), 4),
            "difference": round(float(means[1] - means[0]), 4),
            "interval": [round(float(low), 4), round(float(high), 4)],
            "n": len(sizes),
            "against": f"{second} minus {first}",
        }
        if as_json:
            print(json.dumps(row), flush=True)
            continue
        between = f"{row['difference']:+.4f} ({low:+.4f} to {high:+.4f})"
        line = f"{row['figure']:48} {row['first']:9.4f} {row['second']:9.4f}  {between}"
        print(f"{line}  n {row['n']}, {row['against']}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with dev/")
    parser.add_argument("--model", default="bundled", help="a GGUF file or pinned weights")
    parser.add_argument("--compare", type=Path, help="a second GGUF file, instead of --format")
    parser.add_argument("--format", choices=FORMATS, default="Q4_0")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    parser.add_argument("--quick", action="store_true", help="four questions, to try the script")
    given = parser.parse_args()
    path = find_gguf(given.model)
    with tempfile.TemporaryDirectory() as temporary:
        other = given.compare or requantise(path, Path(temporary), given.format)
        measure(path, other, given)
