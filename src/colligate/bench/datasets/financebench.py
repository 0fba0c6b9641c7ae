"""FinanceBench: questions over a company's filing, with the pages that answer them.

Read as published in github.com/patronus-ai/financebench: `financebench_open_source.jsonl`; the
filings are the PDFs of the folder `pdfs`, which is the corpus.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import AliasChoices, Field

from colligate.bench.datasets.reading import Shape, candidates, distinct, parsed
from colligate.bench.question import Question, Task


class _Evidence(Shape):
    evidence_text: str
    doc_name: str = Field("", validation_alias=AliasChoices("doc_name", "evidence_doc_name"))
    evidence_page_num: int | None = None  # from 0


class _Record(Shape):
    financebench_id: str
    question: str
    answer: str
    doc_name: str
    evidence: list[_Evidence]


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file; a document's id is the name of its filing.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Record, _question)


def _question(record: _Record) -> Question:
    evidence = [(each.doc_name or record.doc_name, each) for each in record.evidence]
    pages = [each.evidence_page_num for each in record.evidence]
    return Question(
        record.financebench_id,
        record.question,
        answers=(record.answer,),
        documents=candidates((name, name, "") for name in {record.doc_name: None}),
        gold=distinct(name for name, _ in evidence),
        gold_texts=tuple((name, each.evidence_text) for name, each in evidence),
        task=Task.JUDGED,
        meta={**record.rest, "doc_name": record.doc_name, "evidence_pages": pages},
    )
