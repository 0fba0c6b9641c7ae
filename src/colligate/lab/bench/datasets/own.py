"""A user's own questions: a table (CSV) or JSON Lines, asked of documents in a folder.

Columns: `question`; and if wanted `id`, `answer` (one), `answers` (several, any of which is right),
`documents` (names of files; without them the whole folder is asked), `gold` (those of them that
hold the answer), `answerable` (no where the documents do not answer it). In a table several values
of one cell are separated by "|"; in JSON they are lists.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from colligate.lab.bench.datasets import records
from colligate.lab.bench.question import Question

_SEPARATOR = "|"


def _split(value: Any) -> Any:
    if isinstance(value, str):
        return [part.strip() for part in value.split(_SEPARATOR) if part.strip()]
    return [] if value is None else value


def _default_to_yes(value: Any) -> Any:
    value = value.strip() if isinstance(value, str) else value
    return True if value is None or value == "" else value


_Several = Annotated[tuple[str, ...], BeforeValidator(_split)]


class _Record(records.QuestionRecord):
    question: str
    id: records.NullableText = ""
    answer: records.NullableText = ""
    answers: _Several = ()
    documents: _Several = ()
    gold: _Several = ()
    answerable: Annotated[bool, BeforeValidator(_default_to_yes)] = True

    def make(self) -> Question:
        documents = records.make_candidates((name, "", "") for name in self.documents)
        gold = records.unique(self.gold)
        if stray := [name for name in gold if self.documents and name not in self.documents]:
            raise ValueError(f"gold {stray[0]!r} is not among its documents")
        answers = records.unique([self.answer, *self.answers])
        if answers and not self.answerable:
            raise ValueError("it has an answer and is marked as not answerable")
        return Question(
            self.id,
            self.question,
            answers=answers,
            documents=documents,
            gold=gold,
            answerable=self.answerable,
            meta=self.rest,
        )


def _fits(record: records.JsonObject) -> bool:
    # Other fields may be gold that this format would pass over; `--format own` takes them anyway.
    return "question" in record and record.keys() <= _Record.model_fields.keys()


OWN = records.make_format("own", _Record, _Record.make, _fits)
