"""The hf backend as its callers see it: calls at once, streams, cancelling, closing, adapters."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from colligate.errors import ContextTooSmall, ModelError, RequestRefused
from colligate.models import Capability, Message
from colligate.models.hf.model import HFModel
from support.models import ask, likelihood

ASK = [Message("system", "You answer questions."), Message("user", "Who signed the treaty?")]
SCHEMA = {
    "type": "object",
    "properties": {"found": {"type": "boolean"}},
    "required": ["found"],
    "additionalProperties": False,
}


@pytest.fixture
async def model(tiny_folder: Callable[..., Path]) -> AsyncIterator[HFModel]:
    folder = tiny_folder("llama", endless=True)
    made = HFModel(str(folder), name="hf:tiny", dtype="float32", parallel=4)
    yield made
    await made.aclose()


async def test_it_can_do_everything(model):
    assert model.capabilities == frozenset(Capability)
    assert model.context_tokens == 512


async def test_calls_at_once_answer_as_calls_alone(model):
    asks = [[Message("user", "otter " * n + "?")] for n in (1, 30, 5, 60, 2, 11)]
    alone = [await ask(model, turns, max_tokens=20) for turns in asks]
    together = await asyncio.gather(*(ask(model, turns, max_tokens=20) for turns in asks))
    assert [c.text for c in together] == [c.text for c in alone]
    assert len({c.text for c in alone}) > 1


async def test_a_prompt_with_the_same_prefix_is_not_read_twice(tiny_folder):
    folder = tiny_folder("gemma3", endless=True)  # prompts longer than its sliding window
    longer = [*ASK, Message("assistant", "Nobody."), *ASK[1:]]
    alone = HFModel(str(folder), name="hf:alone", dtype="float32")
    model = HFModel(str(folder), name="hf:tiny", dtype="float32")
    expected = await ask(alone, longer, max_tokens=4)
    first, again, last = [await ask(model, turns, max_tokens=4) for turns in (ASK, ASK, longer)]
    read = first.usage.input_tokens
    assert (first.usage.cached_tokens, again.usage.cached_tokens) == (0, read - 1)
    assert last.usage.cached_tokens >= read - 1
    assert (again.text, last.text) == (first.text, expected.text)
    await alone.aclose()
    await model.aclose()


async def test_a_reader_goes_on_from_an_attention_pass(model):
    await model.attention(ASK, [(0, 3)])
    completion = await ask(model, ASK, max_tokens=4)
    assert completion.usage.cached_tokens > completion.usage.input_tokens / 2


async def test_counts_are_what_a_call_takes(model):
    completion = await ask(model, ASK, max_tokens=4)
    assert completion.usage.input_tokens == await model.count_prompt(ASK)
    text = "Otters eat <|im_end|> fish. 🦦"
    assert await model.count_tokens(text) == len(await model.token_spans(text))


async def test_a_call_can_be_given_up_while_others_go_on(model):
    whole = await ask(model, ASK, max_tokens=200)
    begun = asyncio.Event()
    given_up = asyncio.create_task(
        ask(model, ASK[1:], max_tokens=400, on_token=lambda _: begun.set())
    )
    other = asyncio.create_task(ask(model, ASK, max_tokens=200))
    await begun.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    assert (await other).text == whole.text


async def test_closing_ends_the_calls_under_way(model):
    begun = asyncio.Event()
    call = asyncio.create_task(ask(model, ASK, max_tokens=400, on_token=lambda _: begun.set()))
    await begun.wait()
    await model.aclose()
    await model.aclose()
    with pytest.raises(ModelError, match="hf:tiny was closed"):
        await call
    with pytest.raises(ModelError, match="hf:tiny was closed"):
        await likelihood(model, "a", "b")


async def test_a_schema_that_cannot_be_held_is_refused(model):
    with pytest.raises(RequestRefused):
        await ask(model, ASK, max_tokens=8, schema={"type": "no-such-type"})
    completion = await ask(model, ASK, max_tokens=40, schema=SCHEMA, temperature=1.0, seed=3)
    assert set(json.loads(completion.text)) == {"found"}


async def test_too_long_is_said_before_anything_is_computed(model):
    long = [Message("user", "word " * 600)]
    for call in (
        lambda: ask(model, long, max_tokens=4),
        lambda: likelihood(model, "word " * 600, "x"),
        lambda: model.labels(long, ["Yes", "No"]),
        lambda: model.attention(long, [(0, 4)]),
    ):
        with pytest.raises(ContextTooSmall, match="the window 512"):
            await call()


async def test_labels_are_scored_whole_and_after_what_is_forced(model):
    labels = ["Yes, it does", "Yes, it does not"]  # they begin alike
    odds = await model.labels(ASK, labels)
    assert list(odds.odds) == labels
    assert sum(odds.odds.values()) == pytest.approx(1)
    assert 0 < odds.mass <= 1
    assert odds.bounded == ()
    forced = await model.labels(ASK, labels, forced="[")
    assert forced.mass != pytest.approx(odds.mass, rel=0.01, abs=0)


async def test_a_base_model_warns_that_it_is_none_for_instructions(tiny_folder, tmp_path):
    for file in tiny_folder("qwen2").iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    base = HFModel(str(tmp_path), name="hf:base", dtype="float32")
    completion = await ask(base, ASK, max_tokens=4)
    assert "no chat template" in completion.warnings[0]
    assert sum(await base.attention(ASK, [(0, len(ASK[-1].content))])) > 0
    await base.aclose()


async def test_calls_with_adapters_and_without_side_by_side(model, tiny_folder, save):
    folders = [
        save(f"adapter-{seed}", of=tiny_folder("llama", endless=True), seed=seed, r=8,
             target_modules=["q_proj", "v_proj"])
        for seed in (5, 6)
    ]  # fmt: skip
    adapted = [await model.with_adapter(folder) for folder in folders]
    forms = [model, *adapted]
    assert adapted[0].name == f"hf:tiny+{folders[0]}"
    assert len({form.version for form in forms}) == 3

    async def text(form: HFModel) -> str:
        return (await ask(form, ASK, max_tokens=20)).text

    async def attention(form: HFModel) -> list[float]:
        return await form.attention(ASK, [(0, 5)])

    async def score(form: HFModel) -> list[float]:
        return await likelihood(form, "Otters eat", " fish")

    alone = [await text(form) for form in forms]
    assert len(set(alone)) == 3
    assert await asyncio.gather(*map(text, forms * 2)) == alone * 2
    for measure in (attention, score):
        values = [await measure(form) for form in forms]
        together = await asyncio.gather(*map(measure, forms))
        for one, other in zip(values, together, strict=True):
            assert one == pytest.approx(other, abs=1e-5)
        assert values[0] != pytest.approx(values[1], abs=1e-6)
    await adapted[0].aclose()  # leaves the model itself open
    assert await text(model)
