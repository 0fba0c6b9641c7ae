"""Some of a data set's questions, the same ones each time."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from typing import Protocol, TypeVar


class HasId(Protocol):
    """A question, or a document."""

    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=HasId)


def some(questions: Iterable[T], limit: int | None, seed: int) -> list[T]:
    """At most `limit` questions, drawn by hashes of seed and id, in the order of these.

    So they do not depend on the file's order, files with the same ids give the same questions,
    and the first n of a larger limit are those of the limit n. No more than `limit` are held.
    """

    def drawn(question: T) -> bytes:
        return hashlib.sha256(f"{seed}\n{question.id}".encode("utf-8", "surrogatepass")).digest()

    if limit is None:
        return sorted(questions, key=drawn)
    return heapq.nsmallest(limit, questions, key=drawn)
