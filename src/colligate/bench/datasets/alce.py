"""ALCE's forms of ASQA, QAMPARI and ELI5: questions with a hundred retrieved passages.

Read as published in princeton-nlp/ALCE-data: `asqa_eval_gtr_top100.json`,
`qampari_eval_gtr_top100.json`, `eli5_eval_bm25_top100.json` and the files like them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pydantic import AliasChoices, Field

from colligate.bench.datasets.reading import Shape, Text, candidates, distinct, parsed
from colligate.bench.datasets.tasks import Pair, readings
from colligate.bench.question import Candidate, Question, Task


class _Passage(Shape):
    id: Text = ""  # ELI5's have none
    title: Text = ""
    text: str


class _Record(Shape):
    question: str
    docs: tuple[_Passage, ...] = ()

    @property
    def documents(self) -> tuple[Candidate, ...]:
        """The passages, best first."""
        return candidates((each.id, each.title, each.text) for each in self.docs)


class _Annotation(Shape):
    long_answer: str


class _Asqa(_Record):
    id: Text = Field("", validation_alias=AliasChoices("sample_id", "id"))
    qa_pairs: list[Pair]
    annotations: tuple[_Annotation, ...] = ()
    answer: Text = ""


class _Qampari(_Record):
    id: Text = ""
    answers: list[list[str]]


class _Eli5(_Record):
    id: Text = ""
    answer: str
    claims: list[str]


def asqa(path: Path) -> Iterator[Question]:
    """The questions of a file of ASQA: readings with their short answers, long answers.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Asqa, _asqa)


def qampari(path: Path) -> Iterator[Question]:
    """The questions of a file of QAMPARI: sets, each member with its aliases.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Qampari, _qampari)


def eli5(path: Path) -> Iterator[Question]:
    """The questions of a file of ELI5: a long answer and the claims it makes.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    return parsed(path, _Eli5, _eli5)


def _asqa(record: _Asqa) -> Question:
    return Question(
        record.id,
        record.question,
        answers=distinct(answer for pair in record.qa_pairs for answer in pair.short_answers),
        documents=record.documents,
        task=Task.READINGS,
        readings=readings(record.qa_pairs),
        long_answers=_long_answers(record),
        meta=record.rest,
    )


def _long_answers(record: _Asqa) -> tuple[str, ...]:
    """Both annotators' answers; `answer` is one of them and first, for it is MAUVE's."""
    annotated = [each.long_answer for each in record.annotations]
    if not annotated or record.answer in annotated:
        annotated = [record.answer, *annotated]
    return distinct(annotated)


def _qampari(record: _Qampari) -> Question:
    return Question(
        record.id,
        record.question,
        answers=distinct(alias for member in record.answers for alias in member),
        documents=record.documents,
        task=Task.SET,
        members=tuple(distinct(member) for member in record.answers),
        meta=record.rest,
    )


def _eli5(record: _Eli5) -> Question:
    return Question(
        record.id,
        record.question,
        answers=distinct([record.answer]),
        documents=record.documents,
        task=Task.LONG,
        claims=distinct(record.claims),
        long_answers=distinct([record.answer]),
        meta=record.rest,
    )
