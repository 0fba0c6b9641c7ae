"""Measure reading files on Ray: two workers against one, and against processes without Ray.

    python benchmarks/workers.py FOLDER [--rounds 3] [--kill]

All ways read the same folder in turn and only store it: parsing is what they share out. With
`--kill` a cluster of a head and two nodes reads it, one node is ended after the first files, and
what is stored is compared with what one process stores.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

from colligate.library import AsyncLibrary


def show(figure: str, value: float, unit: str, against: str | None = None) -> None:
    line = {"figure": figure, "value": round(value, 2), "unit": unit, "against": against}
    print(json.dumps(line), flush=True)


async def read(folder: Path, **options: Any) -> tuple[float, list[str]]:
    """Return the seconds that storing a folder took, and its documents."""
    with tempfile.TemporaryDirectory() as place:
        async with AsyncLibrary(place, embedder="static") as library:
            began = time.perf_counter()
            await library.add(folder, index=False, **options)
            return time.perf_counter() - began, [each.id for each in await library.documents()]


def read_on_ray(folder: Path, workers: int) -> float:
    """Return the seconds on a cluster of its own, which is started before."""
    ray.init("local", num_cpus=workers, include_dashboard=False, log_to_driver=False)
    seconds, _ = asyncio.run(read(folder, workers="ray"))
    ray.shutdown()
    return seconds


def kill_a_node(folder: Path) -> None:
    """Print whether a folder is whole though one of two nodes ended while it was read."""
    _, expected = asyncio.run(read(folder, workers=1))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
    ray.init(cluster.address, log_to_driver=False)
    left = [nodes[0]]

    def watch(progress: Any) -> None:
        if left and progress.phase == "reading" and progress.done >= 2:
            cluster.remove_node(left.pop(), allow_graceful=False)

    seconds, found = asyncio.run(read(folder, workers="ray", on_progress=watch))
    ray.shutdown()
    cluster.shutdown()
    show("documents lost", len(set(expected) - set(found)), "count", f"of {len(expected)}")
    show("documents twice", len(found) - len(set(found)), "count", f"of {len(expected)}")
    show("seconds with one node ended", seconds, "s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill", action="store_true")
    arguments = parser.parse_args()
    if arguments.kill:
        kill_a_node(arguments.folder)
        return
    times: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for workers in (1, 2):
            times.setdefault(f"ray {workers}", []).append(read_on_ray(arguments.folder, workers))
            seconds, _ = asyncio.run(read(arguments.folder, workers=workers))
            times.setdefault(f"processes {workers}", []).append(seconds)
    middle = {name: statistics.median(each) for name, each in times.items()}
    for name, seconds in middle.items():
        show(f"seconds, {name}", seconds, "s")
    show("two workers of Ray against one", middle["ray 1"] / middle["ray 2"], "x")
    show("two processes against one", middle["processes 1"] / middle["processes 2"], "x")


if __name__ == "__main__":
    main()
