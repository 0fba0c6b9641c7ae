"""Measure seconds of whole questions, with this version of colligate and with another one.

    python benchmarks/question_time.py --data DIR [--other OLD/bin/python] [--strategy duquad]
    python benchmarks/question_time.py --demo [--other OLD/bin/python]

A question of NQ over its own 20 passages of 100 words, by `Engine.ask`; models are loaded and the
passages indexed before, and each round has another question. `--demo` is the command of `make
demo`, each time in a process of its own, over a library that knows the files: its second run.

`--other` names the Python of a second installation, and the two take turns. For the one before
llama.cpp's own libraries:

    git worktree add OLD 6224fec && cd OLD
    python -m venv .venv && .venv/bin/pip install --editable .
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from colligate.engine import Engine
from evidence_data import read_records, select_some
from pairs import (
    EXAMPLES,
    Table,
    Worker,
    add_options,
    alternate,
    answer_requests,
    divide,
    find_gguf,
)

DEMO = (
    "How many days does a violator have to cure a first violation under the GPL version 3, "
    "and how many under the Mozilla Public License 2.0?"
)


def answer_questions(file: Path, model: str, strategy: str, count: int) -> None:
    """Answer the requests of the other process: number of a question in, seconds and reply out."""
    records = select_some(read_records(file), count)
    runner = asyncio.Runner()
    with tempfile.TemporaryDirectory() as folder:
        documents = {d["id"]: d for record in records for d in record["documents"]}
        file = Path(folder) / "passages.jsonl"
        file.write_text("\n".join(map(json.dumps, documents.values())), "utf-8")
        engine = Engine(model=model, library=Path(folder) / "library")
        runner.run(engine.add([file]))

        def ask(number: int) -> dict[str, Any]:
            record = records[number]
            ids = [d["id"] for d in record["documents"]]
            began = time.perf_counter()
            given = runner.run(engine.ask(record["question"], strategy=strategy, documents=ids))
            return {
                "seconds": time.perf_counter() - began,
                "calls": given.usage.calls,
                "read": given.usage.input_tokens,
                "written": given.usage.output_tokens,
                "found": given.found,
                "text": given.text,
                "warnings": list(given.warnings),
            }

        answer_requests({"ask": ask})
        runner.run(engine.aclose())


def measure_questions(arguments: argparse.Namespace) -> None:
    file = arguments.data / "dev" / "nq20_gold_at_9.jsonl.gz"
    rounds = 1 if arguments.quick else arguments.rounds
    table = Table(arguments.json)
    workers = {}
    for name, python in list_pythons(arguments).items():
        command = [python, __file__, "--answer", str(file), "--strategy", arguments.strategy]
        command += ["--model", arguments.model, "--rounds", str(rounds)]
        workers[name] = Worker(*command)
    ways: dict[str, Callable[[int], dict[str, Any]]] = {
        name: lambda n, worker=worker: worker.ask("ask", number=n)
        for name, worker in workers.items()
    }
    found = alternate(ways, rounds)
    for name, answers in found.items():
        sizes = ", ".join(
            f"{sum(a[key] for a in answers) / len(answers):.0f} {key}"
            for key in ("calls", "read", "written")
        )
        table.say(f"{arguments.strategy}, {name}", [a["seconds"] for a in answers], "s", sizes)
        for warning in sorted({w for a in answers for w in a["warnings"]}):
            print(f"{name} warned: {warning}", file=sys.stderr)
    say_ratio(table, {name: [a["seconds"] for a in each] for name, each in found.items()})
    table.close(list(workers.values()))


def measure_demo(arguments: argparse.Namespace) -> None:
    table = Table(arguments.json)
    with tempfile.TemporaryDirectory() as folder:

        def run(name: str, python: str) -> float:
            command = [python, "-m", "colligate", "ask", DEMO, str(EXAMPLES / "licences")]
            command += ["--library", str(Path(folder) / name), "--model", arguments.model]
            began = time.perf_counter()
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode not in (0, 3):  # answered, or not found
                raise SystemExit(done.stderr)
            return time.perf_counter() - began

        ways: dict[str, Callable[[int], float]] = {
            name: lambda n, name=name, python=python: run(name, python)
            for name, python in list_pythons(arguments).items()
        }
        found = alternate(ways, 1 if arguments.quick else arguments.rounds)
    for name, seconds in found.items():
        table.say(f"make demo, second run, {name}", seconds, "s")
    say_ratio(table, found)
    table.close()


def list_pythons(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the Python of each installation."""
    return {"this": sys.executable} | ({"other": arguments.other} if arguments.other else {})


def say_ratio(table: Table, seconds: dict[str, list[float]]) -> None:
    if "other" in seconds:
        ratio = divide(seconds["other"], seconds["this"])
        table.say("times faster", ratio, "x", "the other installation")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_options(parser, rounds=3)
    parser.add_argument("--data", type=Path, help="folder with dev/")
    parser.add_argument("--demo", action="store_true", help="the command of make demo")
    parser.add_argument("--other", help="the Python of another installation of colligate")
    parser.add_argument("--strategy", default="duquad")
    parser.add_argument("--answer", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.model != "bundled":
        given.model = f"gguf:{find_gguf(given.model)}"
    if given.answer:
        answer_questions(given.answer, given.model, given.strategy, given.rounds + 1)
    elif given.demo:
        measure_demo(given)
    elif given.data:
        measure_questions(given)
    else:
        parser.error("give --data DIR, or --demo")
