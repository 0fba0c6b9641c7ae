"""Events that a server sent, as events again, so that the progress display can show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from colligate.core.events import Asked, Asking, Event, Measured, Noted, Progressed

# The display treats these apart; of all others it shows the line.
_KINDS = {kind.__name__.lower(): kind for kind in (Asked, Asking, Measured, Noted, Progressed)}


@dataclass(frozen=True)
class ServerEvent(Event):
    """An event as the server sent it."""

    sent: Mapping[str, Any]

    def line(self) -> str:
        return str(self.sent.get("line", ""))

    def to_json(self) -> dict[str, Any]:
        """Return what the server sent."""
        return dict(self.sent)


def event_of(sent: Mapping[str, Any]) -> Event:
    """Return the event that `Event.to_json` wrote; prompts may have been left out."""
    sent = {name: value for name, value in sent.items() if name != "at"}
    name = sent.get("event")
    if name == "queued":
        return Progressed("waiting", 0, 0, f"at place {sent.get('place')} in the server's queue")
    fields = {key: value for key, value in sent.items() if key not in ("event", "line")}
    if name == "asked":
        fields.setdefault("messages", ())
    try:
        event: Event = TypeAdapter(_KINDS[str(name)]).validate_python(fields)
    except (KeyError, ValidationError):
        return ServerEvent(sent)
    return event
