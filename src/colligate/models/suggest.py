"""The name a person most likely meant."""

from __future__ import annotations

from collections.abc import Iterable

from rapidfuzz import fuzz, process


def closest(name: str, known: Iterable[str]) -> str | None:
    """The known name nearest to a mistyped one, or None when none is near.

    >>> closest("bundeld", ["bundled", "gguf:PATH"])
    'bundled'
    >>> closest("zebra", ["bundled"]) is None
    True
    """
    found = process.extractOne(name, list(known), scorer=fuzz.ratio, score_cutoff=60)
    return found[0] if found else None
