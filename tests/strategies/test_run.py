"""What a run meters and what it refuses to spend, whatever comes of the calls."""

from __future__ import annotations

import pytest
from pydantic import BaseModel

from colligate.errors import BudgetExceeded, MalformedOutput, RateLimited
from colligate.models import Completion, Message, Usage
from colligate.strategies.trace import Asked

ASK = [Message("user", "Which city?")]


class City(BaseModel):
    name: str


def reply(text: str) -> Completion:
    return Completion(text, Usage(100, 10), "scripted")


async def test_answers_that_came_to_nothing_are_metered(make_run) -> None:
    run, _ = make_run(None, [reply("Paris."), reply("I said Paris."), reply("No.")])
    with pytest.raises(MalformedOutput):
        await run.structured(ASK, City, max_tokens=20)
    assert run.meter.report().calls == 3
    assert run.meter.tokens == 330


async def test_what_was_spent_before_a_failure_is_metered(make_run) -> None:
    run, _ = make_run(None, [reply("Paris."), RateLimited("later")])
    with pytest.raises(RateLimited):
        await run.structured(ASK, City, max_tokens=20)
    assert run.meter.tokens == 110


async def test_asking_again_is_within_the_budget(make_run) -> None:
    run, model = make_run(None, [reply("Paris."), reply('{"name": "Paris"}')], max_tokens=120)
    with pytest.raises(BudgetExceeded):
        await run.structured(ASK, City, max_tokens=20)
    assert len(model.calls) == 1


async def test_the_trace_has_each_prompt_as_it_was_asked(make_run) -> None:
    run, _ = make_run(None, [reply("Paris."), reply('{"name": "Paris"}')])
    assert (await run.structured(ASK, City, max_tokens=20)).value.name == "Paris"
    first, second = [event for _, event in run.trace.events if isinstance(event, Asked)]
    assert first.messages == tuple(ASK)
    assert [message.role for message in second.messages] == ["user", "assistant", "user"]
