"""The hf backend as its callers see it: calls at once, streams, cancelling, closing, adapters."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

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


async def test_it_can_do_everything(model: HFModel) -> None:
    assert model.capabilities == frozenset(Capability)
    assert model.context_tokens == 512


async def test_calls_at_once_answer_as_calls_alone(model: HFModel) -> None:
    asks = [[Message("user", "otter " * n + "?")] for n in (1, 30, 5, 60, 2, 11)]
    alone = [await ask(model, turns, max_tokens=20) for turns in asks]
    together = await asyncio.gather(*(ask(model, turns, max_tokens=20) for turns in asks))
    assert [c.text for c in together] == [c.text for c in alone]
    assert len({c.text for c in alone}) > 1


async def test_a_prompt_that_begins_alike_is_not_read_twice(model: HFModel) -> None:
    first = await ask(model, ASK, max_tokens=4)
    second = await ask(model, [*ASK, Message("assistant", first.text), *ASK[1:]], max_tokens=4)
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens >= first.usage.input_tokens - 1


async def test_a_reader_goes_on_from_an_attention_pass(model: HFModel) -> None:
    await model.attention(ASK, [(0, 3)])
    completion = await ask(model, ASK, max_tokens=4)
    assert completion.usage.cached_tokens > completion.usage.input_tokens / 2


async def test_counts_are_what_a_call_takes(model: HFModel) -> None:
    completion = await ask(model, ASK, max_tokens=4)
    assert completion.usage.input_tokens == await model.count_prompt(ASK)
    text = "Otters eat <|im_end|> fish. 🦦"
    assert await model.count_tokens(text) == len(await model.token_spans(text))


async def test_a_call_can_be_given_up_while_others_go_on(model: HFModel) -> None:
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


async def test_closing_ends_the_calls_under_way(model: HFModel) -> None:
    begun = asyncio.Event()
    call = asyncio.create_task(ask(model, ASK, max_tokens=400, on_token=lambda _: begun.set()))
    await begun.wait()
    await model.aclose()
    await model.aclose()
    with pytest.raises(ModelError, match="hf:tiny was closed"):
        await call
    with pytest.raises(ModelError, match="hf:tiny was closed"):
        await likelihood(model, "a", "b")


async def test_a_schema_that_cannot_be_held_is_refused(model: HFModel) -> None:
    with pytest.raises(RequestRefused):
        await ask(model, ASK, max_tokens=8, schema={"type": "no-such-type"})
    completion = await ask(model, ASK, max_tokens=40, schema=SCHEMA, temperature=1.0, seed=3)
    assert set(json.loads(completion.text)) == {"found"}


async def test_too_long_is_said_before_anything_is_computed(model: HFModel) -> None:
    long = [Message("user", "word " * 600)]
    for call in (
        lambda: ask(model, long, max_tokens=4),
        lambda: likelihood(model, "word " * 600, "x"),
        lambda: model.labels(long, ["Yes", "No"]),
        lambda: model.attention(long, [(0, 4)]),
    ):
        with pytest.raises(ContextTooSmall, match="the window 512"):
            await call()


async def test_labels_are_scored_whole_and_after_what_is_forced(model: HFModel) -> None:
    labels = ["Yes, it does", "Yes, it does not"]  # they begin alike
    odds = await model.labels(ASK, labels)
    assert list(odds.odds) == labels
    assert sum(odds.odds.values()) == pytest.approx(1)
    assert 0 < odds.mass <= 1
    assert odds.bounded == ()
    forced = await model.labels(ASK, labels, forced="[")
    assert forced.mass != pytest.approx(odds.mass, rel=0.01, abs=0)


async def test_a_base_model_warns_that_it_is_none_for_instructions(
    tiny_folder: Callable[..., Path], tmp_path: Path
) -> None:
    for file in tiny_folder("qwen2").iterdir():
        if file.name != "chat_template.jinja":
            (tmp_path / file.name).write_bytes(file.read_bytes())
    base = HFModel(str(tmp_path), name="hf:base", dtype="float32")
    completion = await ask(base, ASK, max_tokens=4)
    assert "no chat template" in completion.warnings[0]
    assert sum(await base.attention(ASK, [(0, len(ASK[-1].content))])) > 0
    await base.aclose()


@pytest.fixture
def adapter(tiny_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """A folder with a LoRA adapter for the tiny model that changes what it says."""
    import peft
    import torch
    import transformers

    base = transformers.AutoModelForCausalLM.from_pretrained(tiny_folder("llama", endless=True))
    torch.manual_seed(5)
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with warnings.catch_warnings(action="ignore"):  # peft's own, about transformers
        peft.get_peft_model(base, config).save_pretrained(tmp_path / "adapter")
    return tmp_path / "adapter"


async def test_calls_with_and_without_an_adapter_side_by_side(
    model: HFModel, adapter: Path
) -> None:
    adapted = await model.with_adapter(adapter)
    assert adapted.name == f"hf:tiny+{adapter}"
    assert adapted.version != model.version

    async def both(call: Callable[[HFModel], Any]) -> tuple[Any, Any]:
        alone = await call(model), await call(adapted)
        for one, other in zip(alone, await asyncio.gather(call(model), call(adapted)), strict=True):
            assert one == (other if isinstance(other, str) else pytest.approx(other, abs=1e-5))
        return alone

    base, changed = await both(lambda m: _text(m))
    assert base != changed
    base, changed = await both(lambda m: likelihood(m, "Otters eat", " fish"))
    assert base != pytest.approx(changed, abs=1e-3)
    base, changed = await both(lambda m: m.attention(ASK, [(0, 5)]))
    assert base != pytest.approx(changed, abs=1e-6)
    await adapted.aclose()  # leaves the model itself open
    assert await _text(model)


async def _text(model: HFModel) -> str:
    return (await ask(model, ASK, max_tokens=20)).text
