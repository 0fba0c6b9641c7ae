"""Our decoding loop against transformers' continuous batching, on one loaded model.

    python benchmarks/decoding.py [--model hf:FOLDER] [--dtype float32] [--rounds 5] [--tokens 64]

1, 4 and 16 prompts of 100 to 400 tokens are answered at the same time, greedily, each with exactly
`--tokens` tokens. The two loops take turns in one process, and which of them begins alternates;
nothing is remembered between rounds. Throughput counts the written tokens over the whole time,
reading the prompts included. The last figure is the share of answers with equal token ids.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from transformers import ContinuousBatchingConfig, GenerationConfig

from colligate.documents.chunking import Structural
from colligate.documents.reading import read
from colligate.models.hf import generate
from colligate.models.hf.loading import find_source, load_tokenizer
from colligate.models.hf.prompts import Prompts
from colligate.models.hf.runtime import Runtime
from colligate.models.weights import pull

EXAMPLES = Path(__file__).parent.parent / "examples"
AT_ONCE = (1, 4, 16)

Ids = list[int]


def prompts_of(prompts: Prompts, count: int) -> list[Ids]:
    """Beginnings of the example documents' passages, of different lengths."""
    cut = Structural(400, prompts.token_spans)
    texts = [
        document.slice(span)
        for file in sorted((EXAMPLES / "licences").iterdir())
        for document in read(file).documents
        for span in cut(document)
    ]
    ids = [prompts.encode_literal(text, beginning=True) for text in texts]
    return [each for each in ids if 100 <= len(each) <= 400][:count]


class Ours:
    def __init__(self, runtime: Runtime, prompts: Prompts) -> None:
        self._generator = generate.Generator(runtime, prompts, max(AT_ONCE))
        self._generator._ends = frozenset()  # every answer has the same length
        self._runtime = runtime

    def answer(self, prompts: list[Ids], tokens: int) -> list[Ids]:
        self._runtime.prefixes.clear()
        requests = [generate.Request(ids, tokens) for ids in prompts]
        for request in requests:
            self._generator.submit(request)
        return [self._generator.run(request) for request in requests]


class Theirs:
    def __init__(self, model: Any, options: dict[str, Any]) -> None:
        self._manager = model.init_continuous_batching(
            GenerationConfig(do_sample=False, eos_token_id=-1),
            ContinuousBatchingConfig(allow_block_sharing=False, **options),
        )
        self._manager.start()

    def answer(self, prompts: list[Ids], tokens: int) -> list[Ids]:
        names = self._manager.add_requests(prompts, max_new_tokens=tokens)
        answers: dict[str, Ids] = {}
        while len(answers) < len(names):
            result = self._manager.get_result(timeout=1)
            if result is not None:
                if result.error:
                    raise RuntimeError(result.error)
                answers[result.request_id] = result.generated_tokens
        return [answers[name] for name in names]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--options", type=json.loads, default={})
    a = parser.parse_args()
    target = a.model.removeprefix("hf:") or str(pull("smollm2-135m")["model"])
    source = find_source(target)
    prompts = Prompts(load_tokenizer(source), target)
    runtime = Runtime(source, target, context=8192, dtype=a.dtype)
    print(runtime.model.config._attn_implementation, flush=True)
    all_prompts = prompts_of(prompts, 16)
    print([len(p) for p in all_prompts])
    chosen: dict[int, Ids] = {}
    write = generate._Answer.write

    def noting(self, logits):
        write(self, logits)
        chosen.setdefault(id(self.request), []).append(self.row.token)

    ours = Ours(runtime, prompts)
    theirs = Theirs(runtime.model, a.options)
    for n in AT_ONCE:
        ps = all_prompts[:n]
        generate._Answer.write = noting
        chosen.clear()
        reqs = [generate.Request(ids, a.tokens) for ids in ps]
        for r in reqs:
            ours._generator.submit(r)
        for r in reqs:
            ours._generator.run(r)
        ids = [chosen[id(r)] for r in reqs]
        generate._Answer.write = write
        b = theirs.answer(ps, a.tokens)
        print(
            n,
            "equal",
            sum(x == y for x, y in zip(ids, b)),
            [next((i for i, (u, v) in enumerate(zip(x, y)) if u != v), -1) for x, y in zip(ids, b)],
            len(b[0]),
        )
        secs = {"ours": [], "theirs": []}
        for turn in range(a.rounds):
            for name, w in (("ours", ours), ("theirs", theirs))[:: 1 if turn % 2 else -1]:
                t = time.perf_counter()
                w.answer(ps, a.tokens)
                secs[name].append(time.perf_counter() - t)
        for name in secs:
            print(
                n,
                name,
                round(n * a.tokens / statistics.median(secs[name]), 1),
                "tok/s",
                [round(s, 2) for s in secs[name]],
            )
        print(
            "ratio theirs/ours throughput",
            statistics.median(x / y for x, y in zip(secs["ours"], secs["theirs"])),
            flush=True,
        )
    theirs._manager.stop()
