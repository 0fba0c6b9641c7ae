"""Lost in the Middle: Natural Questions with the gold passage at a known place among others.

Read as published in github.com/nelson-liu/lost-in-the-middle, `qa_data/*/nq-open-*.jsonl.gz`. Its
records have no ids, so the question's words make them.
"""

from __future__ import annotations

from colligate.lab.bench.datasets.records import (
    NullableText,
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    make_id,
    unique,
)
from colligate.lab.bench.question import Question


class _Passage(RecordModel):
    id: NullableText = ""  # null for the gold passage
    title: NullableText
    text: str
    isgold: bool = False


class _Record(RecordModel):
    question: str
    answers: list[str]
    ctxs: list[_Passage]


def _make_question(record: _Record) -> Question:
    documents = make_candidates((each.id, each.title, each.text) for each in record.ctxs)
    gold = unique(each.id or make_id(each.title, each.text) for each in record.ctxs if each.isgold)
    places = [document.id for document in documents]
    return Question(
        id="",
        text=record.question,
        answers=unique(record.answers),
        documents=documents,
        gold=gold,
        gold_at=places.index(gold[0]) if gold else None,
        meta=record.rest,
    )


LOST_IN_THE_MIDDLE = make_format(
    "lost-in-the-middle",
    "NQ with the gold passage at a known place (ctxs)",
    _Record,
    _make_question,
    has_fields("question", "answers", "ctxs"),
)
