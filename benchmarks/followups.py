"""Measure how a reader completes questions that point back to earlier turns.

    python benchmarks/followups.py [--model bundled]

Each row of `followups.jsonl` has turns, a question and what the complete question has to say
(`says`) and must not say (`not`). The examples of the prompt were chosen with the rows of the part
"chosen" in sight; those of the part "new" were written afterwards. Every question is written to
standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from pathlib import Path

from colligate.core.run import Run
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from colligate.models.metering import Meter
from colligate.models.names import open_model
from colligate.readers.followup import Turn, complete_question

ROWS = Path(__file__).parent / "followups.jsonl"


async def measure(name: str) -> None:
    rows = [json.loads(line) for line in ROWS.read_text("utf-8").splitlines()]
    right: dict[str, list[bool]] = {}
    kept, seconds = 0, []
    model = open_model(name)
    try:
        for row in rows:
            run = Run(InMemorySources(()), {Role.READER: model}, Meter())
            began = time.perf_counter()
            turns = [Turn(*turn) for turn in row["turns"]]
            alone = await complete_question(row["question"], turns, run)
            seconds.append(time.perf_counter() - began)
            said = alone.casefold()
            good = all(word in said for word in row["says"])
            good = good and not any(word in said for word in row.get("not", ()))
            right.setdefault(row["part"], []).append(good)
            kept += bool(run.warnings)
            print("right" if good else "wrong", row["question"], "->", alone, file=sys.stderr)
    finally:
        await model.aclose()
    for part, goods in right.items():
        print(f"{part}: {sum(goods)} of {len(goods)} right")
    print(f"asked as they are, with a warning: {kept}")
    print(f"seconds, median: {statistics.median(seconds):.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="how questions that point back are completed")
    parser.add_argument("--model", default="bundled")
    asyncio.run(measure(parser.parse_args().model))
