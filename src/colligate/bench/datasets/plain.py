"""The plain form: one uniform record for questions of any data set.

    {"id", "question", "answers": [...], "documents": [{"id", "title", "text"}, ...],
     "gold_document_ids": [...], "meta": {...}}

A document with an empty text is looked up in the corpus. `meta` may hold what only some data sets
know: `qa_pairs` (readings, as in ASQA), `answer_list` (members of a set, each a list of aliases),
`claims`, `long_answers`, `gold_position`, `answerable`, `evidence_text`, and for Loong's
`prompt_template`, `instruction` and `question_field`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field

from colligate.bench.datasets.corpus import document_of_page
from colligate.bench.datasets.loong import wording
from colligate.bench.datasets.reading import Shape, Text, candidates, distinct, parsed, understood
from colligate.bench.datasets.tasks import asked
from colligate.bench.question import Question


class _Document(Shape):
    id: str
    title: Text = ""
    text: Text = ""


class _Meta(Shape):
    gold_position: int | None = None
    answerable: bool = True
    evidence_text: tuple[str, ...] = ()
    dataset: Text = ""
    prompt_template: Text = ""
    instruction: Text = ""
    question_field: Text = ""


class _Record(Shape):
    id: str
    question: str
    answers: list[str]
    documents: tuple[_Document, ...] = ()
    gold_document_ids: tuple[str, ...] = ()
    meta: dict[str, Any] = Field(default_factory=dict)


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file in the plain form.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Record, _question)


def _question(record: _Record) -> Question:
    documents = candidates((each.id, each.title, each.text) for each in record.documents)
    meta = understood(_Meta, record.meta)
    if meta.gold_position is not None and not 0 <= meta.gold_position < len(documents):
        raise ValueError(f"meta.gold_position {meta.gold_position} is not among its documents")
    there = {document.id for document in documents}
    # Gold may be named by page where whole documents are read (FinanceBench).
    gold = distinct(
        document_of_page(id_) if id_ not in there and document_of_page(id_) in there else id_
        for id_ in record.gold_document_ids
    )
    kept = {**record.rest, **record.meta}
    if gold != distinct(record.gold_document_ids):
        kept["gold_pages"] = list(record.gold_document_ids)
    answers = distinct(record.answers)
    judged = bool(meta.prompt_template or meta.evidence_text)
    text = record.question
    if meta.prompt_template:
        text = wording(meta.prompt_template, meta.instruction, meta.question_field)
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
        **asked(record.meta, answers, judged=judged),
    )
