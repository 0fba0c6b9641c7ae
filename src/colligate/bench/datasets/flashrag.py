"""FlashRAG's form, in which it gives NQ, TriviaQA, PopQA and many others: questions alone.

Read as published: `{"id", "question", "golden_answers": [...], "metadata": {...}}`. The documents
are those of a corpus.
"""

from __future__ import annotations

from typing import Any

from colligate.bench.datasets.records import (
    NullableText,
    RecordModel,
    has_fields,
    make_format,
    unique,
)
from colligate.bench.datasets.tasks import find_task
from colligate.bench.question import Question

_GOLD = ("qa_pairs",)  # what of the metadata decides the task


class _Record(RecordModel):
    id: NullableText = ""
    question: str
    golden_answers: list[str]
    metadata: dict[str, Any] | None = None


def _make_question(record: _Record) -> Question:
    answers = unique(record.golden_answers)
    meta = {**record.rest, **(record.metadata or {})}
    gold = {name: meta[name] for name in _GOLD if name in meta}
    fields = find_task(gold, answers, judged=False)
    return Question(record.id, record.question, answers, meta=meta, **fields)


FLASHRAG = make_format(
    "flashrag",
    "FlashRAG's form (NQ, TriviaQA, PopQA and others)",
    _Record,
    _make_question,
    has_fields("question", "golden_answers"),
)
