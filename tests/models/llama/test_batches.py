"""Answers computed together, from shared beginnings and with guesses, are those of each alone.

Two ways to compute the same logits differ by rounding, so these models compute in full precision.
"""

import asyncio
from typing import Any

import pytest

from colligate.models import Message
from colligate.models.llama import api
from colligate.models.llama.model import LlamaCpp
from support.models import ask, likelihood

# Guessed tokens

PASSAGE = (
    "The Halden bridge was designed by the engineer Ingrid Solberg and opened in 1932. It is 412"
    " metres long and made of steel. Otters live by the river below it and eat mostly fish."
)
QUOTE = {
    "type": "object",
    "properties": {
        "quote": {"type": "string", "maxLength": 120},
        "page": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["quote", "page"],
    "additionalProperties": False,
}
REQUESTS: list[tuple[str, dict[str, Any]]] = [
    (f"Repeat this text word for word:\n\n{PASSAGE}", {}),
    (f"{PASSAGE}\n\nQuote the first sentence.", {"schema": QUOTE}),
    (f"{PASSAGE}\n\n{PASSAGE}\n\nWho designed the bridge? Quote the passage.", {}),
    ("def add(a, b):\n    return a + b\n\nWrite this again with the name subtract.", {}),
    (f"{PASSAGE}\n\nWhat do otters eat?", {"temperature": 0.7, "seed": 3}),
    (f"{PASSAGE}\n\nWhen was it opened?", {"schema": QUOTE, "temperature": 0.7, "seed": 3}),
    ("What is the capital of France?", {}),
    (f"{PASSAGE}\n\nRepeat this.", {}),
]


async def answer(model: LlamaCpp, text: str, options: dict[str, Any]) -> str:
    turns = [Message("system", "You answer questions."), Message("user", text)]
    return (await ask(model, turns, max_tokens=20, **options)).text


@pytest.mark.real
@pytest.mark.model
async def test_guesses_and_others_change_no_text(float32_gguf, open_model, batches, full_precision):
    """Alone and among nine of which one is cancelled, with shared beginnings and without."""
    texts, counts = [], []
    for draft in (0, 16):
        model = open_model(float32_gguf, context_tokens=1536, draft=draft)
        batches.clear()
        texts.append([await answer(model, *request) for request in REQUESTS])
        counts.append(len(batches))
        # What they begin with is known now.
        texts.append(await asyncio.gather(*(answer(model, *request) for request in REQUESTS)))
        await model.aclose()
        model = open_model(float32_gguf, context_tokens=1536, draft=draft)
        begun = asyncio.Event()
        turns = [Message("user", "Write a long story about a bridge.")]
        story = asyncio.create_task(
            ask(model, turns, max_tokens=400, on_token=lambda _, begun=begun: begun.set())
        )
        await begun.wait()
        others = asyncio.gather(*(answer(model, *request) for request in REQUESTS))
        await asyncio.sleep(0.2)
        story.cancel()
        with pytest.raises(asyncio.CancelledError):
            await story
        texts.append(await others)
        await model.aclose()
    for text in texts[1:]:
        assert text == texts[0]
    assert texts[0][0].startswith("The Halden bridge was designed by")
    assert counts[1] < 0.7 * counts[0]


OTTERS = "Otters eat fish, and bridges cross rivers. "


def turns(number: int) -> list[Message]:
    return [Message("user", OTTERS * (number % 5) + f"Who signed the treaty of {number}?")]


@pytest.mark.parametrize("architecture", ["llama", "lfm2"])
async def test_answers_that_need_more_cells_than_there_are_wait(
    open_model, tiny_gguf, full_precision, architecture
):
    file = tiny_gguf(architecture, endless=True)
    expected = [(await ask(open_model(file), turns(n), max_tokens=100)).text for n in range(8)]
    model = open_model(file)
    prompts = [await model.count_prompt(turns(number)) for number in range(8)]
    assert sum(prompts) + 8 * 100 > 2 * model.context_tokens
    heard: list[list[str]] = [[] for _ in range(8)]
    found = await asyncio.gather(
        *(ask(model, turns(n), max_tokens=100, on_token=heard[n].append) for n in range(8))
    )
    assert [each.text for each in found] == expected
    assert ["".join(pieces) for pieces in heard] == expected
    assert [each.usage.output_tokens for each in found] == [100] * 8
    assert [each.usage.input_tokens for each in found] == prompts


async def test_a_likelihood_put_back_in_its_middle_is_begun_anew(open_model, full_precision):
    pair = ("Otters", OTTERS * 44)
    expected = await likelihood(open_model(), *pair)
    assert len(expected) > 256  # more than one batch
    model, grown, pieces = open_model(), asyncio.Event(), 0

    def count(_: str) -> None:
        nonlocal pieces
        pieces += 1
        if pieces > 512 - len(expected):
            grown.set()

    story = asyncio.create_task(ask(model, max_tokens=400, on_token=count))
    await grown.wait()
    assert await likelihood(model, *pair) == pytest.approx(expected, abs=1e-4)
    assert (await story).usage.output_tokens == 400


@pytest.mark.parametrize("kind", ["chat", "likelihoods", "labels", "attention"])
async def test_a_long_prompt_nobody_awaits_is_not_read_on(open_model, batches, monkeypatch, kind):
    model = open_model(context_tokens=8192)
    text = OTTERS * 600
    tokens = await model.count_tokens(text)
    assert 4096 < tokens < 8192
    call = {
        "chat": lambda: ask(model, [Message("user", text)]),
        "likelihoods": lambda: model.likelihoods([(text, " a"), ("word", " b")]),
        "labels": lambda: model.labels([Message("user", text)], ["a", "b"]),
        "attention": lambda: model.attention(text, [(0, 6)]),
    }[kind]
    begun, loop = asyncio.Event(), asyncio.get_running_loop()
    decode = api.Context.decode

    def tell(*given: Any) -> bool:
        loop.call_soon_threadsafe(begun.set)
        return decode(*given)

    monkeypatch.setattr(api.Context, "decode", tell)
    task = asyncio.create_task(call())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await ask(model, max_tokens=3)).text
    assert sum(batches) < tokens / 2
