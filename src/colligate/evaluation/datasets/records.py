"""From a record as its publishers give it to a question."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from colligate.documents.document import digest
from colligate.evaluation.datasets.jsonl import Record, faulty, lines, place_of
from colligate.evaluation.question import Candidate, Question


class Shape(BaseModel):
    """The fields of a record that are understood; the others become the question's `meta`."""

    model_config = ConfigDict(extra="allow", frozen=True, coerce_numbers_to_str=True)

    @property
    def rest(self) -> dict[str, Any]:
        """The fields that are not among the shape's own."""
        return dict(self.model_extra or {})


T = TypeVar("T")
S = TypeVar("S", bound=Shape)

# A string that may be null.
Text = Annotated[str, BeforeValidator(lambda value: "" if value is None else value)]


def parsed(path: Path, shape: type[S], question: Callable[[S], Question]) -> Iterator[Question]:
    """The questions of a file of records of one shape.

    A question without an id of its own gets one made of its text.

    Raises:
        FaultyRecord: if a record lacks a field, or has an id that stood before. `question`
            raises ValueError to say what else is wrong with one.
    """
    numbered = Numbered()

    def whole(record: Record) -> Question:
        return numbered(question(understood(shape, record)))

    return read_each(path, whole)


def read_each(path: Path, read: Callable[[Record], T]) -> Iterator[T]:
    """What `read` makes of each record; where it raises ValueError the place is told.

    Raises:
        FaultyRecord: if a record is wrong or cut off.
    """
    for number, record in lines(path):
        try:
            found = read(record)
        except ValueError as error:
            raise faulty(path, place_of(path, number), str(error)) from None
        yield found


def understood(shape: type[S], record: Record) -> S:
    """The record as that shape.

    Raises:
        ValueError: saying which field is missing or wrong.
    """
    try:
        return shape.model_validate(record)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
        raise ValueError(f"field {field!r}: {first['msg'].lower()}{more}") from None


class Numbered:
    """Sees to it that each question of a file has an id, and its own."""

    def __init__(self) -> None:
        self._given: set[str] = set()
        self._made: Counter[str] = Counter()

    def __call__(self, question: Question) -> Question:
        """The question; made ids of the same words are told apart by "-2", "-3".

        Raises:
            ValueError: if its id stood before.
        """
        if not question.text.strip():
            raise ValueError("the question is empty")
        if not question.id:
            made = digest(question.text)[:12]
            self._made[made] += 1
            time = self._made[made]
            return dataclasses.replace(question, id=made if time == 1 else f"{made}-{time}")
        if question.id in self._given:
            raise ValueError(f"the id {question.id!r} stood before")
        self._given.add(question.id)
        return question


def candidates(documents: Iterable[tuple[str, str, str]]) -> tuple[Candidate, ...]:
    """The documents of a record, (id, title, text) each, in their order.

    One without an id gets one made of its words, so that a paragraph is the same document in all
    questions. Where a record has the very same paragraph twice it is there once.

    Raises:
        ValueError: if two have the same id.
    """
    found: dict[str, Candidate] = {}
    for id_, title, text in documents:
        name = id_ or made_id(title, text)
        if name not in found:
            found[name] = Candidate(name, title, text)
        elif id_:
            raise ValueError(f"two of its documents have the id {id_!r}")
    return tuple(found.values())


def made_id(title: str, text: str) -> str:
    """The id of a document that its publishers gave none."""
    return digest(f"{title}\n{text}")[:16]


def distinct(values: Iterable[str]) -> tuple[str, ...]:
    """The values that are not blank, each once, in order."""
    return tuple(dict.fromkeys(value for value in values if value.strip()))
