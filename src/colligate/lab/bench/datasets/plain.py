"""Uniform records for questions of any data set: the plain form and FlashRAG's.

The plain form:

    {"id", "question", "answers": [...], "documents": [{"id", "title", "text"}, ...],
     "gold_document_ids": [...], "meta": {...}}

A document with an empty text is looked up in the corpus. `meta` may hold what only some data sets
know: `qa_pairs` (readings, as in ASQA), `answer_list` (members of a set, each a list of aliases),
`claims`, `long_answers`, `gold_position`, `answerable`, `evidence_text`, and for Loong's
`prompt_template`, `instruction` and `question_field`.

FlashRAG gives NQ, TriviaQA, PopQA and many others: `{"id", "question", "golden_answers": [...],
"metadata": {...}}`. The documents are those of a corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from pydantic import Field

from colligate.lab.bench.datasets.loong import make_wording
from colligate.lab.bench.datasets.passages import strip_page
from colligate.lab.bench.datasets.records import (
    NullableText,
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    unique,
    validate,
)
from colligate.lab.bench.question import Question, QuestionReading, QuestionTask


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
        strip_page(id_) if id_ not in there and strip_page(id_) in there else id_
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


# FlashRAG's form


class _FlashragRecord(RecordModel):
    id: NullableText = ""
    question: str
    golden_answers: list[str]
    metadata: dict[str, Any] | None = None


def _make_flashrag_question(record: _FlashragRecord) -> Question:
    answers = unique(record.golden_answers)
    meta = {**record.rest, **(record.metadata or {})}
    fields = find_task({"qa_pairs": meta.get("qa_pairs")}, answers, judged=False)
    return Question(record.id, record.question, answers, meta=meta, **fields)


FLASHRAG = make_format(
    "flashrag",
    "FlashRAG's form (NQ, TriviaQA, PopQA and others)",
    _FlashragRecord,
    _make_flashrag_question,
    has_fields("question", "golden_answers"),
)


# The kind of answer that a record asks for, known from the gold that it brings


class ShortAnswers(RecordModel):
    """One reading of an ambiguous question, and its answer with its aliases (ASQA)."""

    question: str
    short_answers: list[str]


class _Gold(RecordModel):
    qa_pairs: list[ShortAnswers] | None = None
    answer_list: list[list[str]] | None = None
    claims: list[str] | None = None
    long_answers: list[str] | None = None


class TaskFields(TypedDict):
    """The fields of a `Question` that depend on its task."""

    task: QuestionTask
    readings: tuple[QuestionReading, ...]
    members: tuple[tuple[str, ...], ...]
    claims: tuple[str, ...]
    long_answers: tuple[str, ...]


def find_task(meta: Mapping[str, Any], answers: Sequence[str], *, judged: bool) -> TaskFields:
    """Return the task and its gold: which of `qa_pairs`, `answer_list` and `claims` is there."""
    gold = validate(_Gold, dict(meta))
    if gold.qa_pairs:
        task = QuestionTask.READINGS
    elif gold.answer_list:
        task = QuestionTask.SET
    elif gold.claims:
        task = QuestionTask.LONG
    else:
        task = QuestionTask.JUDGED if judged else QuestionTask.SHORT
    return TaskFields(
        task=task,
        readings=make_readings(gold.qa_pairs or ()),
        members=tuple(unique(member) for member in gold.answer_list or ()),
        claims=unique(gold.claims or ()),
        long_answers=unique(gold.long_answers or (answers if gold.claims else ())),
    )


def make_readings(pairs: Sequence[ShortAnswers]) -> tuple[QuestionReading, ...]:
    """Return the readings of an ambiguous question."""
    return tuple(QuestionReading(pair.question, unique(pair.short_answers)) for pair in pairs)
