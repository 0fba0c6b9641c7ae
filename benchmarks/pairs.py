"""Share code between benchmarks that compare ways of doing the same in one run.

The ways take turns, each round in another order, so that other work on the machine slows all of
them. A figure is the median of the rounds with the lowest and the highest; a ratio is that of the
two ways in the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from colligate.models.weights import BUNDLED, PINNED, pull

T = TypeVar("T")

EXAMPLES = Path(__file__).parent.parent / "examples"


def compute(engine: Any, request: Any) -> Any:
    """Let llama.cpp's engine compute until a request has its outcome, and return it."""
    while request.outcome is None:
        engine.advance()
    if isinstance(request.outcome, Exception):
        raise request.outcome
    return request.outcome


def alternate(
    ways: Mapping[str, Callable[[int], T]], rounds: int, *, warm: bool = True
) -> dict[str, list[T]]:
    """Return what each way returns in each round, after one that warms up; it gets the number."""
    names = list(ways)
    found: dict[str, list[T]] = {name: [] for name in names}
    for number in range(0 if warm else 1, rounds + 1):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            result = ways[name](number)
            if number:
                found[name].append(result)
    return found


def divide(first: Sequence[float], second: Sequence[float]) -> list[float]:
    """Return the ratio of each round."""
    return [a / b for a, b in zip(first, second, strict=True)]


class Table:
    """Prints figures as they come: lines of a table, or JSON objects."""

    def __init__(self, as_json: bool) -> None:
        self._json = as_json
        self._began = (time.perf_counter(), *_read_busy())
        load = os.getloadavg()[0]
        self._tell(f"{_processor()}, {os.cpu_count()} processors; load at the beginning {load:.2f}")
        if not as_json:
            print(f"{'':58} {'median':>9} {'':10} {'lowest to highest':>20}   n  compared with")

    def say(self, figure: str, values: Sequence[float], unit: str, against: str = "") -> None:
        """Print the median, lowest and highest of a figure's values."""
        low, middle, high = min(values), statistics.median(values), max(values)
        if self._json:
            row = {"figure": figure, "value": _round(middle), "unit": unit, "against": against}
            row |= {"lowest": _round(low), "highest": _round(high), "n": len(values)}
            print(json.dumps(row, ensure_ascii=False), flush=True)
            return
        between = f"{_round(low):g} to {_round(high):g}"
        line = (
            f"{figure:58} {_round(middle):>9g} {unit:10} {between:>20} {len(values):3}  {against}"
        )
        print(line.rstrip(), flush=True)

    def close(self, children: Sequence[Worker] = ()) -> None:
        """Print how much of the machine other work used meanwhile; end the workers."""
        for worker in children:
            worker.close()
        seconds = time.perf_counter() - self._began[0]
        busy, mine = _read_busy()
        others = (busy - self._began[1]) - (mine - self._began[2])
        load = os.getloadavg()[0]
        self._tell(
            f"{seconds:.0f} s; load at the end {load:.2f}; other work used "
            f"{max(0.0, others) / seconds:.2f} of {os.cpu_count()} processors"
        )

    def _tell(self, line: str) -> None:
        print(json.dumps({"machine": line}) if self._json else line, flush=True)


def _round(value: float) -> float:
    return float(f"{value:.3g}")


def _read_busy() -> tuple[float, float]:
    """Return the processor seconds of the whole machine, and of this process and ended workers."""
    own = sum(os.times()[:4])
    stat = Path("/proc/stat")
    if not stat.exists():
        return own, own
    user, nice, system, _, _, *interrupts = map(int, stat.read_text().split("\n")[0].split()[1:8])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK"), own


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    found = {
        key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)
    }
    family = (
        f", family {found['cpu family']} model {found['model']}" if "cpu family" in found else ""
    )
    return found.get("model name", platform.processor()) + family


class Worker:
    """Another process that answers a JSON object on each line of its input with one of its own.

    It idles meanwhile; its model stays loaded.
    """

    def __init__(self, *command: str | Path) -> None:
        self._process = subprocess.Popen(
            list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, what: str, **given: Any) -> Any:
        """Send one request and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):  # it ended; why is on its standard error
            self._process.stdin.write(json.dumps({"do": what, **given}) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):  # libraries may write there too
                return json.loads(line)
        raise SystemExit(f"the process of {what} ended: {self._process.wait()}")

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def answer_requests(answers: Mapping[str, Callable[..., Any]]) -> None:
    """Answer the requests of a `Worker`, each by the function of its name."""
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(answers[request.pop("do")](**request)), flush=True)


def add_options(parser: argparse.ArgumentParser, *, rounds: int) -> None:
    """Add the options that these benchmarks share."""
    parser.add_argument(
        "--model", default="bundled", help="a GGUF file or pinned weights (default: bundled)"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help=f"default: {rounds}")
    parser.add_argument("--threads", type=int, help="default: the physical cores")
    parser.add_argument("--json", action="store_true", help="print JSON objects, one a line")
    parser.add_argument("--quick", action="store_true", help="small sizes, to try the script")


def find_gguf(model: str) -> Path:
    """Return the file of a model's name: a path, or pinned weights, downloaded if necessary."""
    name = BUNDLED if model == "bundled" else model
    return pull(name)["model"] if name in PINNED else Path(name.removeprefix("gguf:"))
