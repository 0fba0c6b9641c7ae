"""ALCE's forms of ASQA, QAMPARI and ELI5: questions with a hundred retrieved passages.

Read as published in princeton-nlp/ALCE-data: `asqa_eval_gtr_top100.json`,
`qampari_eval_gtr_top100.json`, `eli5_eval_bm25_top100.json` and the files like them.
"""

from __future__ import annotations

from pydantic import AliasChoices, Field

from colligate.lab.bench.datasets.plain import ShortAnswers, make_readings
from colligate.lab.bench.datasets.records import (
    JsonObject,
    NullableText,
    RecordModel,
    has_fields,
    make_candidates,
    make_format,
    unique,
)
from colligate.lab.bench.question import Candidate, Question, QuestionTask


class _Passage(RecordModel):
    id: NullableText = ""  # ELI5's have none
    title: NullableText = ""
    text: str


class _Record(RecordModel):
    question: str
    docs: tuple[_Passage, ...] = ()

    @property
    def documents(self) -> tuple[Candidate, ...]:
        """The passages, best first."""
        return make_candidates((each.id, each.title, each.text) for each in self.docs)


# ASQA: readings of an ambiguous question with their short answers, and long answers


class _Annotation(RecordModel):
    long_answer: str


class _Asqa(_Record):
    id: NullableText = Field("", validation_alias=AliasChoices("sample_id", "id"))
    qa_pairs: list[ShortAnswers]
    annotations: tuple[_Annotation, ...] = ()
    answer: NullableText = ""


def _asqa_question(record: _Asqa) -> Question:
    return Question(
        record.id,
        record.question,
        answers=unique(answer for pair in record.qa_pairs for answer in pair.short_answers),
        documents=record.documents,
        task=QuestionTask.READINGS,
        readings=make_readings(record.qa_pairs),
        long_answers=_long_answers(record),
        meta=record.rest,
    )


def _long_answers(record: _Asqa) -> tuple[str, ...]:
    """Return both annotators' answers, first `answer`, which is one of them: MAUVE takes it."""
    annotated = [each.long_answer for each in record.annotations]
    if not annotated or record.answer in annotated:
        annotated = [record.answer, *annotated]
    return unique(annotated)


# QAMPARI: sets, each member with its aliases


class _Qampari(_Record):
    id: NullableText = ""
    answers: list[list[str]]


def _qampari_question(record: _Qampari) -> Question:
    return Question(
        record.id,
        record.question,
        answers=unique(alias for member in record.answers for alias in member),
        documents=record.documents,
        task=QuestionTask.SET,
        members=tuple(unique(member) for member in record.answers),
        meta=record.rest,
    )


def _is_qampari(record: JsonObject) -> bool:
    answers = record.get("answers")
    return isinstance(answers, list) and bool(answers) and isinstance(answers[0], list)


# ELI5: a long answer and the claims it makes


class _Eli5(_Record):
    id: NullableText = ""
    answer: str
    claims: list[str]


def _eli5_question(record: _Eli5) -> Question:
    return Question(
        record.id,
        record.question,
        answers=unique([record.answer]),
        documents=record.documents,
        task=QuestionTask.LONG,
        claims=unique(record.claims),
        long_answers=unique([record.answer]),
        meta=record.rest,
    )


ASQA = make_format(
    "asqa", "ASQA in ALCE's form", _Asqa, _asqa_question, has_fields("question", "qa_pairs")
)
QAMPARI = make_format("qampari", "QAMPARI in ALCE's form", _Qampari, _qampari_question, _is_qampari)
ELI5 = make_format(
    "eli5", "ELI5 in ALCE's form", _Eli5, _eli5_question, has_fields("question", "claims")
)
