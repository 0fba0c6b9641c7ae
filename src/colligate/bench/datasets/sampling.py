"""A sample of a data set, the same one each time."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Iterable
from typing import Protocol, TypeVar


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
