"""Answer with xllamacpp 2026.10.11549, the peer of `speed.py` and `likelihood.py`.

    python -m venv PEER && PEER/bin/pip install xllamacpp==2026.10.11549
    PEER/bin/python benchmarks/peer.py FILE --threads N --context N

The other benchmarks start it. It needs nothing else: requests and answers are JSON objects, one on
each line of standard input and output. The settings are those with which colligate used it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

os.environ.setdefault("GOMP_SPINCOUNT", "1000")  # its threads must not spin while the other runs

import xllamacpp  # after the setting, which libgomp reads when it is loaded


def load(path: str, threads: int, context: int, batch: int):
    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx = context
    params.n_parallel = 1
    params.n_batch = batch
    params.warmup = False
    params.verbosity = -1
    params.cache_ram_mib = 0
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads = threads
    return xllamacpp.Server(params)


def run(server, route: str, request: dict) -> dict:
    """Return the text, the counts of tokens, and the seconds of one request, without its cache."""
    pieces: list[str] = []
    scores: list[float] = []
    last: dict = {}

    def on_chunk(chunk: str) -> bool:
        nonlocal last
        last = json.loads(chunk)
        for choice in last.get("choices", ()):
            pieces.append(choice.get("text") or choice.get("delta", {}).get("content") or "")
            entries = (choice.get("logprobs") or {}).get("content", [])
            scores.extend(entry["logprob"] for entry in entries)
        return "error" in last

    fixed = {"temperature": 0.0, "stream": True, "cache_prompt": False}
    request = {**fixed, "stream_options": {"include_usage": True}, **request}
    began = time.perf_counter()
    getattr(server, f"handle_{route}")(json.dumps(request), on_chunk)
    whole = time.perf_counter() - began
    if "error" in last:
        raise SystemExit(f"xllamacpp refused the request: {last['error']}")
    return {
        "text": "".join(pieces),
        "scores": scores,
        "read": last["timings"]["prompt_n"],
        "written": last["timings"]["predicted_n"],
        "first": last["timings"]["prompt_ms"] / 1000,
        "whole": whole,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, default=16384)
    parser.add_argument("--batch", type=int, default=128)
    given = parser.parse_args()
    server = load(given.file, given.threads, given.context, given.batch)

    def complete(ids: list[int], tokens: int) -> dict:
        """Write so many tokens after a prompt."""
        return run(server, "completions", {"prompt": ids, "max_tokens": tokens, "ignore_eos": True})

    def answer(messages: list[dict], tokens: int, schema: dict) -> dict:
        """Answer messages with JSON."""
        named = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        request = {"messages": messages, "max_tokens": tokens, "response_format": named}
        return run(server, "chat_completions", request)

    def score(pairs: list[list[list[int]]]) -> dict:
        """Return log-probabilities of tokens after others: they are written under a grammar."""
        values = []
        run(server, "completions", {"prompt": [pairs[0][0][0] + 1], "max_tokens": 1})  # forget
        began = time.perf_counter()
        for before, after in pairs:
            grammar = "root ::= " + " ".join(f"<[{token}]>" for token in after)
            request = {"prompt": before, "max_tokens": len(after), "grammar": grammar}
            request |= {"logprobs": 1, "cache_prompt": True}  # as colligate used it
            values.append(run(server, "completions", request)["scores"])
        return {"scores": values, "seconds": time.perf_counter() - began}

    answers = {"complete": complete, "answer": answer, "score": score}
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answers[request.pop("do")](**request)), flush=True)


if __name__ == "__main__":
    main()
