"""MuSiQue: questions over two to four of twenty paragraphs; in MuSiQue-Full half lack one.

Read as published: `musique_ans_v1.0_*.jsonl` and `musique_full_v1.0_*.jsonl`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from colligate.bench.datasets.reading import Shape, candidates, distinct, made_id, parsed
from colligate.bench.question import Question


class _Paragraph(Shape):
    title: str
    paragraph_text: str
    is_supporting: bool = False


class _Record(Shape):
    id: str
    question: str
    paragraphs: list[_Paragraph]
    answer: str
    answer_aliases: tuple[str, ...] = ()
    answerable: bool = True


def questions(path: Path) -> Iterator[Question]:
    """The questions of a file.

    MuSiQue-Full asks each question twice under one id; "-unanswerable" is added to that of the
    one that cannot be answered, and its `meta` keeps the answers as `withheld_answers`.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Record, _question)


def _question(record: _Record) -> Question:
    answers = distinct([record.answer, *record.answer_aliases])
    paragraphs = record.paragraphs
    withheld = {} if record.answerable else {"withheld_answers": list(answers)}
    return Question(
        id=record.id if record.answerable else f"{record.id}-unanswerable",
        text=record.question,
        answers=answers if record.answerable else (),
        documents=candidates(("", each.title, each.paragraph_text) for each in paragraphs),
        gold=distinct(
            made_id(each.title, each.paragraph_text) for each in paragraphs if each.is_supporting
        ),
        answerable=record.answerable,
        meta={**record.rest, **withheld},
    )
