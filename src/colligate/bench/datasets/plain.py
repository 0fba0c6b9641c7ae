"""The plain form: one uniform record for questions of any data set.

    {"id", "question", "answers": [...], "documents": [{"id", "title", "text"}, ...],
     "gold_document_ids": [...], "meta": {...}}

A document with an empty text is looked up in the corpus. `meta` may hold what only some data sets
know: `qa_pairs` (readings, as in ASQA), `answer_list` (members of a set, each a list of aliases),
`claims`, `long_answers`, `gold_position`, `answerable`, `evidence_text`, and for Loong's
`prompt_template`, `instruction` and `question_field`.
"""

from __future__ import annotations

from typing import Any

from pydantic import Field

from colligate.bench.datasets.loong import make_wording
from colligate.bench.datasets.passages import find_document
from colligate.bench.datasets.records import (
    NullableText,
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    unique,
    validate,
)
from colligate.bench.datasets.tasks import find_task
from colligate.bench.question import Question


class _Document(RecordModel):
    id: str
    title: NullableText = ""
    text: NullableText = ""


class _Meta(RecordModel):
    gold_position: int | None = None
    answerable: bool = True
    evidence_text: tuple[str, ...] = ()
    dataset: NullableText = ""
    prompt_template: NullableText = ""
    instruction: NullableText = ""
    question_field: NullableText = ""


class _Record(RecordModel):
    id: str
    question: str
    answers: list[str]
    documents: tuple[_Document, ...] = ()
    gold_document_ids: tuple[str, ...] = ()
    meta: dict[str, Any] = Field(default_factory=dict)


def _make_question(record: _Record) -> Question:
    documents = make_candidates((each.id, each.title, each.text) for each in record.documents)
    meta = validate(_Meta, record.meta)
    if meta.gold_position is not None and not 0 <= meta.gold_position < len(documents):
        raise ValueError(f"meta.gold_position {meta.gold_position} is not among its documents")
    there = {document.id for document in documents}
    # Gold may be named by page where whole documents are read (FinanceBench).
    gold = unique(
        find_document(id_) if id_ not in there and find_document(id_) in there else id_
        for id_ in record.gold_document_ids
    )
    kept = {**record.rest, **record.meta}
    if gold != unique(record.gold_document_ids):
        kept["gold_pages"] = list(record.gold_document_ids)
    answers = unique(record.answers)
    judged = bool(meta.prompt_template or meta.evidence_text)
    text = record.question
    if meta.prompt_template:
        text = make_wording(meta.prompt_template, meta.instruction, meta.question_field)
    return Question(
        id=record.id,
        text=text,
        answers=answers,
        documents=documents,
        gold=gold,
        gold_texts=tuple((gold[0], evidence) for evidence in meta.evidence_text)
        if len(gold) == 1
        else (),
        gold_at=meta.gold_position,
        answerable=meta.answerable,
        meta=kept,
        **find_task(record.meta, answers, judged=judged),
    )


PLAIN = make_format(
    "plain",
    "one uniform form: id, question, answers, documents, gold_document_ids, meta",
    _Record,
    _make_question,
    has_fields("question", "answers", "documents", "gold_document_ids"),
)
