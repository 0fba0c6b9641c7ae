"""Questions of a data set, with all that metrics know about their right answers, and samples."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar


class QuestionTask(StrEnum):
    """The kind of answer that is asked for; it decides which metrics apply."""

    SHORT = "short"  # a few words, any of several aliases
    READINGS = "readings"  # several readings of one question, each with its answers (ASQA)
    SET = "set"  # a list, each member with its aliases (QAMPARI)
    LONG = "long"  # a paragraph (ELI5)
    JUDGED = "judged"  # anything that only a judge can compare (Loong, FinanceBench)


@dataclass(frozen=True)
class Question:
    """A question, the documents it is asked over, and its gold.

    Any of `answers` is right; `answerable` False means that the documents hold none. `documents`
    come with the question, in their order; without any it is asked over the whole corpus. `gold`
    are the ids of the documents that hold the answer, in the order of the data set, and
    `gold_texts` sentences or passages of them as (document id, text), where it names some.
    `gold_at` is the place of the gold document among `documents`, from 0, where the data set
    moves it. `members` are the members of a set with their aliases, `claims` what a long answer
    should say, `long_answers` whole answers. `history` are the turns of a conversation before the
    question, as (question, answer). `meta` is the rest of the record.
    """

    id: str
    text: str
    answers: tuple[str, ...] = ()
    documents: tuple[Candidate, ...] = ()
    gold: tuple[str, ...] = ()
    gold_texts: tuple[tuple[str, str], ...] = ()
    gold_at: int | None = None
    task: QuestionTask = QuestionTask.SHORT
    answerable: bool = True
    readings: tuple[QuestionReading, ...] = ()
    members: tuple[tuple[str, ...], ...] = ()
    claims: tuple[str, ...] = ()
    long_answers: tuple[str, ...] = ()
    history: tuple[tuple[str, str], ...] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)

    @property
    def right_answers(self) -> tuple[str, ...]:
        """The right answers as a person reads them, whatever the task."""
        if self.task is QuestionTask.READINGS:
            return tuple(reading.answers[0] for reading in self.readings if reading.answers)
        if self.task is QuestionTask.SET:
            return tuple(member[0] for member in self.members if member)
        return self.answers or self.long_answers or self.claims


@dataclass(frozen=True)
class Candidate:
    """A document that comes with a question. Without `text` it is looked up in the corpus."""

    id: str
    title: str = ""
    text: str = ""


@dataclass(frozen=True)
class QuestionReading:
    """One reading of an ambiguous question, and its answer with its aliases."""

    question: str
    answers: tuple[str, ...]


class HasId(Protocol):
    """A question, or a document."""

    @property
    def id(self) -> str: ...


Item = TypeVar("Item", bound=HasId)


def draw_sample(items: Iterable[Item], limit: int | None, seed: int) -> list[Item]:
    """Return at most `limit` items, those with the smallest hashes of seed and id.

    So the sample does not depend on the order of the file, files with the same ids give the same
    sample, and the first n of a larger sample are the sample of n. At most `limit` are held.
    """

    def order(item: Item) -> bytes:
        return hashlib.sha256(f"{seed}\n{item.id}".encode("utf-8", "surrogatepass")).digest()

    if limit is None:
        return sorted(items, key=order)
    return heapq.nsmallest(limit, items, key=order)
