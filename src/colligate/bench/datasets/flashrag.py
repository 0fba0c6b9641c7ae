"""FlashRAG's form, in which it gives NQ, TriviaQA, PopQA and many others: questions alone.

Read as published: `{"id", "question", "golden_answers": [...], "metadata": {...}}`. The documents
are a corpus's (`corpus.passages`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from colligate.bench.datasets.reading import Shape, Text, distinct, parsed
from colligate.bench.datasets.tasks import asked
from colligate.bench.question import Question

_GOLD = ("qa_pairs",)  # what of the metadata decides the task


class _Record(Shape):
    id: Text = ""
    question: str
    golden_answers: list[str]
    metadata: dict[str, Any] | None = None


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Record, _question)


def _question(record: _Record) -> Question:
    answers = distinct(record.golden_answers)
    meta = {**record.rest, **(record.metadata or {})}
    gold = {name: meta[name] for name in _GOLD if name in meta}
    return Question(record.id, record.question, answers, meta=meta, **asked(gold, answers))
