"""A prompt whose attention was taken and that is then asked, by one model in process."""

from __future__ import annotations

import pytest

from colligate.core import Run
from colligate.core.events import Asked
from colligate.core.prompts import build_messages, render_documents, render_question
from colligate.documents import Passage, Span
from colligate.library.in_memory import InMemorySources
from colligate.models import Role
from colligate.models.metering import Meter


def station(number: int) -> Passage:
    text = f"In March {number * 7} millimetres of rain fell at station {number}, by the lake."
    return Passage(Span(f"s{number}", 0, len(text)), text, f"Station {number}")


@pytest.mark.real
@pytest.mark.model
async def test_what_attention_has_read_is_not_read_again(smollm2_hf):
    documents, spans = render_documents([(number, station(number)) for number in (1, 2, 3)])
    asks = render_question("How much rain fell in March at station 2?")
    messages = build_messages("Answer from the documents.", documents, asks)
    run = Run(InMemorySources([]), {Role.READER: smollm2_hf}, Meter())
    await run.attention(messages, spans)
    await run.chat(messages, max_tokens=1)
    [asked] = [event for _, event in run.trace.events if isinstance(event, Asked)]
    # All but what the template puts behind the question.
    assert asked.usage.input_tokens - asked.usage.cached_tokens < 12
    assert asked.usage.cached_tokens > 100
