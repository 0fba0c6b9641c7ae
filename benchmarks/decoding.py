"""Compare our decoding loop with transformers' continuous batching, on one loaded model.

    python benchmarks/decoding.py [--model hf:FOLDER] [--dtype float32] [--rounds 4] [--tokens 32]

1, 4 and 16 prompts of 100 to 400 tokens, pieces of one licence, are answered at the same time,
greedily, with exactly `--tokens` tokens each. The two loops take turns, and each begins every
second round; no prefix is kept between rounds. Tokens per second are the written tokens over the
whole time, which includes reading the prompts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

from transformers import ContinuousBatchingConfig, GenerationConfig

from colligate.models.decoding import GenerationRequest
from colligate.models.hf.generate import BatchGenerator
from colligate.models.hf.loading import find_source, load_tokenizer
from colligate.models.hf.runtime import Runtime
from colligate.models.weights import pull

LICENCE = Path(__file__).parent.parent / "examples" / "licences" / "GPL-3.txt"
AT_ONCE = (1, 4, 16)

Ids = list[int]


class Ours:
    def __init__(self, runtime: Runtime, tokenizer: Any) -> None:
        self._runtime = runtime
        self._generator = BatchGenerator(runtime, tokenizer, max(AT_ONCE))
        self._generator._ends = frozenset()  # all answers have the same length

    def answer(self, prompts: list[Ids], tokens: int) -> list[str]:
        self._runtime.prefixes.clear()
        requests = [GenerationRequest(ids, tokens) for ids in prompts]
        for request in requests:
            self._generator.submit(request)
        return [self._generator.run(request).text for request in requests]


class Theirs:
    def __init__(self, runtime: Runtime, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        # Enough memory for all requests; by default it takes 90 % of the machine's.
        options = ContinuousBatchingConfig(
            allow_block_sharing=False, num_blocks=64, max_batch_tokens=8192
        )
        self.manager: Any = runtime.model.init_continuous_batching(
            GenerationConfig(do_sample=False, eos_token_id=-1), options
        )
        self.manager.start()

    def answer(self, prompts: list[Ids], tokens: int) -> list[str]:
        names = self.manager.add_requests(prompts, max_new_tokens=tokens)
        answers: dict[str, str] = {}
        while len(answers) < len(names):
            result = self.manager.get_result(timeout=1)
            if result is not None:
                text = self._tokenizer.decode(result.generated_tokens, skip_special_tokens=True)
                answers[result.request_id] = text.rstrip("\ufffd")
        return [answers[name] for name in names]


def measure(model: str, dtype: str, rounds: int, tokens: int) -> None:
    source = find_source(model)
    tokenizer = load_tokenizer(source)
    runtime = Runtime(source, model, context=8192, dtype=dtype)
    text = tokenizer.encode(LICENCE.read_text("utf-8"), add_special_tokens=False)
    pieces = [text[400 * n : 400 * n + 100 + 20 * n] for n in range(max(AT_ONCE))]
    ours, theirs = Ours(runtime, tokenizer), Theirs(runtime, tokenizer)
    about = f"{Path(model).name}, {dtype}, {tokens} tokens each"
    for count in AT_ONCE:
        seconds: dict[Any, list[float]] = {ours: [], theirs: []}
        texts: dict[Any, list[str]] = {}
        for turn in range(rounds + 1):  # the first warms up
            for loop in (ours, theirs) if turn % 2 else (theirs, ours):
                began = time.perf_counter()
                texts[loop] = loop.answer(pieces[:count], tokens)
                if turn:
                    seconds[loop].append(time.perf_counter() - began)
        speeds = {loop: count * tokens / statistics.median(s) for loop, s in seconds.items()}
        ratios = [a / b for a, b in zip(seconds[ours], seconds[theirs], strict=True)]
        equal = sum(a == b for a, b in zip(texts[ours], texts[theirs], strict=True))
        print_figure(f"{count} at once: ours", speeds[ours], "tokens/s", about)
        print_figure(f"{count} at once: theirs", speeds[theirs], "tokens/s", about)
        print_figure(f"{count} at once: theirs over ours", statistics.median(ratios), "x", about)
        print_figure(f"{count} at once: equal answers", equal / count, "share", about)
    theirs.manager.stop()


def print_figure(name: str, value: float, unit: str, against: str) -> None:
    row = {"figure": name, "value": float(f"{value:.3g}"), "unit": unit, "against": against}
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="", help="hf:FOLDER (default: small pinned weights)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=32)
    arguments = parser.parse_args()
    target = arguments.model.removeprefix("hf:") or str(pull("smollm2-135m")["model"])
    measure(target, arguments.dtype, arguments.rounds, arguments.tokens)
