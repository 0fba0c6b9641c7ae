"""BEIR: a folder of queries, judged documents and a corpus.

Read as published: `queries.jsonl`, `qrels/test.tsv` (or `dev.tsv`, or `train.tsv`), and
`corpus.jsonl`, which `passages` reads. BEIR has no answers: retrieval is measured.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from pydantic import AliasChoices, Field

from colligate.errors import MissingPath
from colligate.lab.bench.datasets.records import (
    DatasetFormat,
    RecordModel,
    parse_questions,
    record_error,
)
from colligate.lab.bench.question import Question

QUERIES_FILE, CORPUS_FILE = "queries.jsonl", "corpus.jsonl"
_JUDGEMENTS = "qrels"
_SPLITS = ("test", "dev", "train")


class _Query(RecordModel):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    text: str


def _read(path: Path) -> Iterator[Question]:
    """Yield the queries that have a judged document; `meta["qrels"]` keeps the grades."""
    judged = _read_judgements(path)

    def make(query: _Query) -> Question:
        grades = judged.get(query.id, {})
        gold = tuple(document for document, grade in grades.items() if grade > 0)
        return Question(query.id, query.text, gold=gold, meta={**query.rest, "qrels": grades})

    return (found for found in parse_questions(path / QUERIES_FILE, _Query, make) if found.gold)


def _read_judgements(folder: Path) -> dict[str, dict[str, int]]:
    """Return the grade of each judged document by query."""
    paths = [folder / _JUDGEMENTS / f"{split}.tsv" for split in _SPLITS]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        raise MissingPath(f"cannot read {folder}", "it has no qrels/test.tsv", "check the folder")
    judged: dict[str, dict[str, int]] = {}
    with path.open(encoding="utf-8-sig", newline="") as stream:
        rows = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
        for row in rows:
            if rows.line_num == 1 and row[-1:] == ["score"]:
                continue
            try:
                query, document, grade = row
                judged.setdefault(query, {})[document] = int(grade)
            except ValueError:
                reason = "expected a query, a document and a whole number, between tabs"
                raise record_error(path, f"line {rows.line_num}", reason) from None
    return judged


BEIR = DatasetFormat("beir", "a BEIR folder", _read)
