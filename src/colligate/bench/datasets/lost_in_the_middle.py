"""Lost in the Middle: Natural Questions with the gold passage at a known place among others.

Read as published in github.com/nelson-liu/lost-in-the-middle, `qa_data/*/nq-open-*.jsonl.gz`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from colligate.bench.datasets.reading import Shape, Text, candidates, distinct, made_id, parsed
from colligate.bench.question import Question


class _Passage(Shape):
    id: Text = ""  # null for the gold passage
    title: Text
    text: str
    isgold: bool = False


class _Record(Shape):
    question: str
    answers: list[str]
    ctxs: list[_Passage]


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file; its records have no ids, so the question's words make them.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Record, _question)


def _question(record: _Record) -> Question:
    documents = candidates((each.id, each.title, each.text) for each in record.ctxs)
    gold = distinct(
        each.id or made_id(each.title, each.text) for each in record.ctxs if each.isgold
    )
    places = [document.id for document in documents]
    return Question(
        id="",
        text=record.question,
        answers=distinct(record.answers),
        documents=documents,
        gold=gold,
        gold_at=places.index(gold[0]) if gold else None,
        meta=record.rest,
    )
