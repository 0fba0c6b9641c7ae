"""What a run is doing, in one line."""

from __future__ import annotations

from typing import Any

import pytest

from colligate.server.render import render_event


@pytest.mark.parametrize(
    "event",
    [
        {"event": "asking", "role": "reader", "model": "a\r\n\r\ndata: {}"},
        {"event": "noted", "text": "one\u2028two\nthree", "warning": False},
        {"event": "scored", "signal": "a\rb", "spans": []},
        {"event": "another\npackage's"},
    ],
)
def test_no_event_ends_the_comment_that_it_is_told_in(event: dict[str, Any]) -> None:
    assert len(render_event(event).splitlines()) == 1
