"""Events that a server tells become the events that they were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from colligate.cli.remote import ServerEvent, parse_event
from colligate.core import Event
from colligate.core.events import Asked, Asking, Measured, Opened, Parsed, Progressed, Retrieved
from colligate.documents import Span
from colligate.models import Message, Usage
from colligate.models.structured import STAGES
from colligate.strategies.longrefiner.events import NodeScore, Weighed

SPAN = Span("lease-1f", 3, 9)


@pytest.mark.parametrize(
    "event",
    [
        Retrieved("who", (SPAN,), (0.5,), "hybrid", 0.1),
        Asking("reader", "openai:x", "chat", 12),
        Asked("reader", "m", (Message("user", "hi"),), "yes", Usage(3, 4), 0.2),
        Measured("likelihood", "scorer", "m", (-1.5,), Usage(3, 0), 0.2, labels=("yes",), mass=0.5),
        Parsed("Statements", dict.fromkeys(STAGES, 1)),
        Weighed("d", None, ("a",), (NodeScore(SPAN, "section", "t", 0.1, 0.2, 0.3, True),)),
        Opened("lease-1f"),
    ],
)
def test_an_event_is_what_it_was(event: Event) -> None:
    told = json.loads(json.dumps({**event.to_json(), "at": 1.5}))
    again = parse_event(told)
    assert again.to_json() == event.to_json()
    assert again.line() == event.line()


@pytest.mark.parametrize(
    "told",
    [
        {"event": "nosuch", "words": ["a"]},
        {"event": "scored", "signal": None},
        {"words": ["no name"]},
    ],
)
def test_what_is_not_known_stays_as_it_was_told(told: dict[str, Any]) -> None:
    again = parse_event({**told, "at": 1.0})
    assert isinstance(again, ServerEvent)
    assert again.to_json() == told


def test_prompts_may_be_missing_and_a_place_in_the_queue_is_progress() -> None:
    asked = Asked("reader", "m", (Message("user", "hi"),), "yes", Usage(3, 4), 0.2).to_json()
    del asked["messages"]
    assert isinstance(parse_event(asked), Asked)
    assert isinstance(parse_event({"event": "queued", "place": 3, "at": 0.1}), Progressed)
