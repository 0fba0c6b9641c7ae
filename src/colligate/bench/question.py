"""A question of a data set, with all that any metric knows about its right answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any


class Task(StrEnum):
    """What kind of answer is asked for; it decides which metrics apply."""

    SHORT = "short"  # a few words, any of several aliases
    READINGS = "readings"  # several readings of one question, each with its answers (ASQA)
    SET = "set"  # a list, each member with its aliases (QAMPARI)
    LONG = "long"  # a paragraph (ELI5)
    JUDGED = "judged"  # anything that only a judge can compare (Loong, FinanceBench)


@dataclass(frozen=True)
class Candidate:
    """A document that comes with a question. Without `text` it is looked up in the corpus."""

    id: str
    title: str = ""
    text: str = ""


@dataclass(frozen=True)
class Reading:
    """One reading of an ambiguous question, and its answer with its aliases."""

    question: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class Question:
    """A question, what it is asked of, and its gold.

    `answers` are right answers, any of which will do; an `answerable` False says that the
    documents hold none. `documents` come with the question, in their order; without any it is
    asked over the whole corpus. `gold` are the ids of the documents that hold the answer, in the
    order of the data set, and `gold_texts` sentences or passages of them where it names some.
    `gold_at` is the place of the gold document among `documents`, from 0, where the data set
    moves it about. `members` are the members of a set with their aliases, `claims` what a long
    answer should say, `long_answers` whole answers. `meta` is the rest of the record.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    documents: tuple[Candidate, ...] = ()
    gold: tuple[str, ...] = ()
    gold_texts: tuple[tuple[str, str], ...] = ()  # (document id, its sentence)
    gold_at: int | None = None
    task: Task = Task.SHORT
    answerable: bool = True
    readings: tuple[Reading, ...] = ()
    members: tuple[tuple[str, ...], ...] = ()
    claims: tuple[str, ...] = ()
    long_answers: tuple[str, ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
