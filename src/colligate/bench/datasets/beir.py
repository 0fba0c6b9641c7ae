"""BEIR: a folder of queries, judged documents and a corpus.

Read as published: `queries.jsonl`, `qrels/test.tsv` (else `dev.tsv` or `train.tsv`), and
`corpus.jsonl`, which `corpus.passages` reads. There are no answers: retrieval is measured.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from pydantic import AliasChoices, Field

from colligate.bench.datasets.reading import Shape, faulty, parsed
from colligate.bench.question import Question
from colligate.errors import MissingPath

QUERIES, CORPUS, JUDGEMENTS = "queries.jsonl", "corpus.jsonl", "qrels"
_SPLITS = ("test", "dev", "train")


class _Query(Shape):
    id: str = Field(validation_alias=AliasChoices("_id", "id"))
    text: str


def questions(path: Path) -> Iterator[Question]:
    """The queries of a folder that have a judged document; `meta["qrels"]` keeps the grades.

    Raises:
        MissingPath: if the folder lacks queries or judgements.
        FaultyRecord: if a record is wrong or cut off.
    """
    judged = judgements(path)

    def question(query: _Query) -> Question:
        grades = judged.get(query.id, {})
        gold = tuple(document for document, grade in grades.items() if grade > 0)
        return Question(query.id, query.text, gold=gold, meta={**query.rest, "qrels": grades})

    for found in parsed(path / QUERIES, _Query, question):
        if found.gold:
            yield found


def judgements(folder: Path) -> dict[str, dict[str, int]]:
    """The grade of each judged document by query.

    Raises:
        MissingPath: if there is no file of judgements.
        FaultyRecord: if a line of it is wrong.
    """
    paths = [folder / JUDGEMENTS / f"{split}.tsv" for split in _SPLITS]
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
                reason = "it is not a query, a document and a whole number, between tabs"
                raise faulty(path, f"line {rows.line_num}", reason) from None
    return judged
