"""Work that was stopped is gone on with only as it was begun."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from colligate.errors import UsageError

_LONGEST = 60  # characters of a value that is quoted
_DIGEST = 64  # characters of a SHA-256, which tell a person nothing


def hold_to(before: Mapping[str, Any], now: Mapping[str, Any], folder: Path, what: str) -> None:
    """Refuse to go on with `what` a folder holds, made otherwise than `before`; both are JSON.

    Raises:
        UsageError: something is another; it is said what.
    """
    was, is_now = dict(_flat(before)), dict(_flat(json.loads(json.dumps(now))))
    wrong = [
        _difference(name, was.get(name), is_now.get(name))
        for name in dict.fromkeys((*was, *is_now))
        if was.get(name) != is_now.get(name)
    ]
    if wrong:
        hint = "take what it was begun with, or name another --out"
        raise UsageError(f"{folder} holds {what} made otherwise", "; ".join(wrong), hint)


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            yield from _flat(inner, f"{prefix}{name}: ")
        else:
            yield f"{prefix}{name}", inner


def _difference(name: str, was: Any, is_now: Any) -> str:
    if all(isinstance(each, str) and len(each) == _DIGEST for each in (was, is_now)):
        return f"{name} has changed"
    return f"{name} was {_said(was)} and is {_said(is_now)}"


def _said(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
