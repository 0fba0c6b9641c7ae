"""What is worked out about a document once and holds for every question asked of it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol


class Kept(Protocol):
    """JSON values by key. `ResponseCache` is one, on disk; its methods may block."""

    def get(self, key: str) -> Any | None:
        """The value kept under the key, or None."""
        ...

    def put(self, key: str, value: Any, tags: Collection[str] = ()) -> None:
        """Keep a value; `tags` are the ids of the documents it may repeat."""
        ...


class InMemory:
    """Kept as long as this object lives."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}

    def get(self, key: str) -> Any | None:
        """The value kept under the key, or None."""
        return self._values.get(key)

    def put(self, key: str, value: Any, tags: Collection[str] = ()) -> None:
        """Keep a value."""
        self._values[key] = value
