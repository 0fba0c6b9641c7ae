"""Events as a server tells them, made the events again that they were."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

import colligate.cli.steps  # noqa: F401 (it imports every module that has events)
from colligate.core.events import Event, Progressed


@dataclass(frozen=True)
class Told(Event):
    """An event of a kind that is not known here, as it was told."""

    said: Mapping[str, Any]

    def to_json(self) -> dict[str, Any]:
        """What was told."""
        return dict(self.said)


def event_of(said: Mapping[str, Any]) -> Event:
    """The event that `Event.to_json` wrote; prompts may have been left out."""
    told = {name: value for name, value in said.items() if name != "at"}
    if told.get("event") == "queued":
        return Progressed("waiting", 0, 0, f"at place {told.get('place')} in the server's queue")
    fields = {name: value for name, value in told.items() if name != "event"}
    if told.get("event") == "asked":
        fields.setdefault("messages", ())
    try:
        kind = _kinds()[told["event"]]
        event: Event = TypeAdapter(kind).validate_python(fields)
    except (KeyError, ValidationError):
        return Told(told)
    return event


@cache
def _kinds() -> dict[str, type[Event]]:
    return {kind.__name__.lower(): kind for kind in _below(Event) if kind is not Told}


def _below(kind: type[Event]) -> Iterator[type[Event]]:
    for each in kind.__subclasses__():
        yield each
        yield from _below(each)
