"""MuSiQue: questions over two to four of twenty paragraphs; in MuSiQue-Full half lack one.

Read as published: `musique_ans_v1.0_*.jsonl` and `musique_full_v1.0_*.jsonl`. MuSiQue-Full asks
each question twice under one id: "-unanswerable" is added to the id of the one that cannot be
answered, and its `meta` keeps the answers as `withheld_answers`.
"""

from __future__ import annotations

from colligate.lab.bench.datasets.records import (
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    make_id,
    unique,
)
from colligate.lab.bench.question import Question


class _Paragraph(RecordModel):
    title: str
    paragraph_text: str
    is_supporting: bool = False


class _Record(RecordModel):
    id: str
    question: str
    paragraphs: list[_Paragraph]
    answer: str
    answer_aliases: tuple[str, ...] = ()
    answerable: bool = True


def _make_question(record: _Record) -> Question:
    answers = unique([record.answer, *record.answer_aliases])
    paragraphs = record.paragraphs
    withheld = {} if record.answerable else {"withheld_answers": list(answers)}
    return Question(
        id=record.id if record.answerable else f"{record.id}-unanswerable",
        text=record.question,
        answers=answers if record.answerable else (),
        documents=make_candidates(("", each.title, each.paragraph_text) for each in paragraphs),
        gold=unique(
            make_id(each.title, each.paragraph_text) for each in paragraphs if each.is_supporting
        ),
        answerable=record.answerable,
        meta={**record.rest, **withheld},
    )


MUSIQUE = make_format(
    "musique", "MuSiQue-Ans, -Full", _Record, _make_question, has_fields("question", "paragraphs")
)
