"""Models that keep a sliding window in place of all tokens: what they share changes no answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.models import Message
from support.models import ask

GEMMA = {"query_pre_attn_scalar": 8}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gemma2": GEMMA,  # a window of 16 tokens
    "gemma3": GEMMA,
}
OTTERS = "Otters eat fish, and bridges cross rivers. "
SYSTEM = Message("system", "You answer a question from a passage of the user's documents. " * 3)
Turns = list[Message]


@pytest.fixture
def find(tiny_gguf: Callable[..., Path]) -> Callable[[str], Path]:
    """`find(architecture)` is a file with a random model."""
    return lambda name: tiny_gguf(name, endless=True, **ARCHITECTURES.get(name, {}))


def passage(number: int, question: str = "Who?") -> Turns:
    text = f"{number}. " + OTTERS[number:] * (2 + number)
    return [SYSTEM, Message("user", f"{text}\n\n{question}")]


def user(text: str) -> Turns:
    return [Message("user", text)]


# What is shared

STORY = "Otters cross the lazy river in numbers. " * 11
CALLS: list[list[Turns]] = [  # asked one group after the other
    [user(STORY), passage(1)],
    [user(STORY[40:])],  # takes cells that the window of the others has left
    [user(STORY[80:])],
    [user(STORY[40:100] + "Who?"), user(STORY[40:] + "Who?"), user(STORY[80:120] + "Who?")],
    [passage(number) for number in range(6)],
    [passage(number, "Who signed?") for number in range(6)],
    [passage(0), [*passage(1), Message("assistant", "Nobody."), *user("Why?")]],
]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
async def test_sharing_and_guesses_change_no_answer(find, open_model, full_precision, architecture):
    file = find(architecture)
    model = open_model(file, draft=15)
    for group in CALLS:
        found = await asyncio.gather(*(ask(model, turns, max_tokens=20) for turns in group))
        for turns, answer in zip(group, found, strict=True):
            alone = open_model(file, draft=0)
            assert answer.text == (await ask(alone, turns, max_tokens=20)).text
            await alone.aclose()
    assert sum(each.usage.cached_tokens for each in found) > 200
