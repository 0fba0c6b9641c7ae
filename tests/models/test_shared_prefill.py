"""DuQUAD's scorer and its Global agent, where both are the same model in process."""

from __future__ import annotations

import pytest

from colligate.core import Run
from colligate.core.events import Asked
from colligate.documents import Document
from colligate.documents.markdown import markdown_tree
from colligate.library import InMemorySources
from colligate.models import Role
from colligate.models.metering import Meter
from colligate.strategies.duquad import Fusion, Signal, fuse_signals
from colligate.strategies.duquad.prompts import view_messages

QUESTION = "How much rain fell in March at station 2?"


def station(number: int) -> Document:
    text = f"In March {number * 7} millimetres of rain fell at station {number}, by the lake."
    name = f"s{number}"
    return Document(name, f"Station {number}", text, markdown_tree(text, name), language="en")


@pytest.mark.model
async def test_what_attention_has_read_the_agent_does_not_read_again(smollm2_hf):
    documents = [station(number) for number in (1, 2, 3)]
    passages = [document.passage(document.span(0, len(document))) for document in documents]
    messages, spans = view_messages(QUESTION, list(enumerate(passages, 1)))
    run = Run(InMemorySources(documents), {Role.READER: smollm2_hf}, Meter())
    await fuse_signals(
        QUESTION,
        passages,
        run,
        fusion=Fusion.SFS,
        without=[Signal.LIKELIHOOD],
        agent_prompt=(messages, spans),
    )
    await run.chat(messages, max_tokens=1)
    [asked] = [event for _, event in run.trace.events if isinstance(event, Asked)]
    # All but what the template puts behind the question.
    assert asked.usage.input_tokens - asked.usage.cached_tokens < 12
    assert asked.usage.cached_tokens > 100
