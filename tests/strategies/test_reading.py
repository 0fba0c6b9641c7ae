"""What a prompt has room for."""

import math

import pytest

from colligate.documents import Passage, Span
from colligate.evidence.reader import FORMS, Form, reader_messages
from colligate.library.given import Given
from colligate.models.protocols import Role
from colligate.strategies.reading import fitting

PASSAGES = [Passage(Span("d", n * 100, n * 100 + 90), f"{n} " * 30, "D") for n in range(200)]


@pytest.mark.parametrize("window", [900, 1500, 4000, 9999, 60_000])
async def test_as_many_of_the_first_are_kept_as_fit_and_few_prompts_counted(make_run, window):
    run, model = make_run(Given([]), context_tokens=window)
    counted = []
    count = model.count_prompt

    async def counting(messages):
        counted.append(messages)
        return await count(messages)

    model.count_prompt = counting
    kept = await fitting("Which?", PASSAGES, run)
    assert kept == PASSAGES[: len(kept)]
    assert len(counted) <= math.log2(len(PASSAGES)) + 2

    async def room(number):
        asked = reader_messages("Which?", PASSAGES[:number])
        wanted = FORMS[Form.SHORT]
        return await run.room(Role.READER, asked, wanted.tokens, schema=wanted.reply)

    assert len(kept) == 1 or await room(len(kept)) >= 0
    assert len(kept) == len(PASSAGES) or await room(len(kept) + 1) < 0
    assert bool(run.warnings) == (len(kept) < len(PASSAGES))
