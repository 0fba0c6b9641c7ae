"""FinanceBench: questions over a company's filing, with the pages that answer them.

Read as published in github.com/patronus-ai/financebench: `financebench_open_source.jsonl`; the
filings are the PDFs of the folder `pdfs`, which is the corpus. A document's id is the name of its
filing.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field

from colligate.lab.bench.datasets.records import (
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    unique,
)
from colligate.lab.bench.question import Question, QuestionTask


class _Evidence(RecordModel):
    evidence_text: str
    doc_name: str = Field("", validation_alias=AliasChoices("doc_name", "evidence_doc_name"))
    evidence_page_num: int | None = None  # from 0


class _Record(RecordModel):
    financebench_id: str
    question: str
    answer: str
    doc_name: str
    evidence: list[_Evidence]


def _make_question(record: _Record) -> Question:
    evidence = [(each.doc_name or record.doc_name, each) for each in record.evidence]
    pages = [each.evidence_page_num for each in record.evidence]
    return Question(
        record.financebench_id,
        record.question,
        answers=(record.answer,),
        documents=make_candidates([(record.doc_name, record.doc_name, "")]),
        gold=unique(name for name, _ in evidence),
        gold_texts=tuple((name, each.evidence_text) for name, each in evidence),
        task=QuestionTask.JUDGED,
        meta={**record.rest, "doc_name": record.doc_name, "evidence_pages": pages},
    )


FINANCEBENCH = make_format(
    "financebench", "FinanceBench", _Record, _make_question, has_fields("financebench_id")
)
