"""Measure reading files on Ray: two workers against one, and against processes without Ray.

    python benchmarks/workers.py FOLDER [--rounds 3] [--kills N] [--seed 0]

All ways read the same folder in turn and only store it: parsing is what they share out. With
`--kills` a cluster of a head and two nodes reads and embeds it again and again. In each round a
worker or a node is killed with SIGKILL at a random moment, and what is stored is compared with
what one process stores.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import ray
from ray.cluster_utils import Cluster

from colligate.errors import ColligateError
from colligate.library.library import AsyncLibrary


def show(figure: str, value: float, unit: str, against: str | None = None) -> None:
    line = {"figure": figure, "value": round(value, 2), "unit": unit, "against": against}
    print(json.dumps(line), flush=True)


async def read(folder: Path, **options: Any) -> tuple[float, list[str]]:
    """Return the seconds that storing a folder took, and its documents: id, digest, passages."""
    with tempfile.TemporaryDirectory() as place:
        async with AsyncLibrary(place, embedder="static") as library:
            began = time.perf_counter()
            result = await library.add(folder, **options)
            seconds = time.perf_counter() - began
            found = [f"cannot read {path}" for path, _ in result.failed]
            found += await library.verify()
            for each in await library.documents():
                text = (await library.document(each.id)).text
                digest = hashlib.sha256(text.encode()).hexdigest()
                found.append(f"{each.id} {digest} {each.passages}")
            return seconds, found


def read_on_ray(folder: Path, workers: int) -> float:
    """Return the seconds on a cluster of its own, which is started before."""
    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    seconds, _ = asyncio.run(read(folder, workers="ray", index=False))
    ray.shutdown()
    return seconds


def kill_often(folder: Path, kills: int, chance: random.Random) -> None:
    """Print what was lost, twice or in half after kills of workers and nodes."""
    _, expected = asyncio.run(read(folder, workers=1))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False, logging_level="ERROR")
    lasts, found = asyncio.run(read(folder, workers="ray"))
    assert sorted(found) == sorted(expected)
    killed: Counter[str] = Counter()

    def kill() -> None:
        at_work = [
            each
            for each in psutil.process_iter(["cmdline"])
            if any(f"ray::{name}" in str(each.info) for name in ("_read", "_embed"))
        ]
        if at_work and chance.random() < 0.5:
            chance.choice(at_work).kill()
            killed["workers"] += 1
        else:
            cluster.remove_node(nodes.pop(0), allow_graceful=False)
            killed["nodes"] += 1

    failures = []
    seconds = []
    for _ in range(kills):
        timer = threading.Timer(chance.uniform(0, lasts), kill)
        timer.start()
        try:
            took, found = asyncio.run(read(folder, workers="ray"))
            seconds.append(took)
            if Counter(found) != Counter(expected):
                failures.append(str(sorted((Counter(found) - Counter(expected)).elements()))[:300])
        except ColligateError as error:
            failures.append(str(error))
        timer.join()
        while len(nodes) < 2:
            nodes.append(cluster.add_node(num_cpus=1))
        print(f"{killed.total()} kills, {len(failures)} failures {failures[-1:]}", file=sys.stderr)
    ray.shutdown()
    cluster.shutdown()
    for what, count in killed.items():
        show(
            f"{what} killed",
            count,
            "count",
            f"{len(expected)} documents, {lasts:.1f} s undisturbed",
        )
    show("seconds, median", statistics.median(seconds), "s")
    show("failures", len(failures), "count", "; ".join(failures))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.kills:
        return kill_often(arguments.folder, arguments.kills, random.Random(arguments.seed))
    times: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for workers in (1, 2):
            times.setdefault(f"ray {workers}", []).append(read_on_ray(arguments.folder, workers))
            seconds, _ = asyncio.run(read(arguments.folder, workers=workers, index=False))
            times.setdefault(f"processes {workers}", []).append(seconds)
    middle = {name: statistics.median(each) for name, each in times.items()}
    for name, seconds in middle.items():
        show(f"seconds, {name}", seconds, "s")
    show("two workers of Ray against one", middle["ray 1"] / middle["ray 2"], "x")
    show("two processes against one", middle["processes 1"] / middle["processes 2"], "x")


if __name__ == "__main__":
    main()
