"""Make samples for an adapter of the reader that reads one passage: a few words, or "none".

    python benchmarks/heads/groups.py DATA GROUPS
    python benchmarks/heads/reading.py GROUPS OUT
    colligate train fit pointwise --data OUT --out ADAPTER

Each question is asked of the passage that answers it, and of the wrong one that is nearest to it,
with the prompt of `readers/pointwise.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colligate.core.prompts import build_messages, render_passages, render_question
from colligate.documents import Document, flat_tree
from colligate.lab.bench.datasets.records import load_records
from colligate.lab.training.samples import HELD_OUT, TRAIN, Sample, write_samples
from colligate.models import Message
from colligate.readers.pointwise import ANSWER

NONE = "none"
LONGEST = 80  # characters of a short answer


def make_samples(group: dict[str, Any]) -> Iterator[Sample]:
    """Yield the exchanges of a question whose answer's place is known, or that has none."""
    asked: dict[str, tuple[str, str]] = {}
    if group["answer"]:
        start, end = group["answer"]
        right = group["right"][0]
        if end - start > LONGEST:
            return
        asked["right"] = (right, right[start:end])
    elif group["right"]:
        return
    asked["wrong"] = (group["wrong"][0], NONE)
    for kind, (text, reply) in asked.items():
        title, _, body = text.partition("\n")
        document = Document("0", title or "Untitled", body, flat_tree("0", len(body)))
        passage = document.passage(document.span(0, len(body)))
        messages = build_messages(
            ANSWER, render_passages([passage]), render_question(group["question"])
        )
        yield Sample(
            f"{group['set']} {group['id']} {kind}",
            "reading",
            (*messages, Message("assistant", reply)),
            {"class": f"{group['set']}, {kind}"},
        )


def main(groups: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in (TRAIN, HELD_OUT):
        records = (record for _, record in load_records(groups / name))
        write_samples(out / name, (each for record in records for each in make_samples(record)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
