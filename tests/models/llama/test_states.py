"""Models that keep a state, or a sliding window, in place of all tokens.

What they share with others changes no answer, and a hybrid one reads hardly more than a plain one.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from colligate.errors import MissingCapability
from colligate.models import Capability, Message
from support.gguf_models import save_mamba
from support.models import ask, likelihood

GEMMA = {"query_pre_attn_scalar": 8}
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "mamba": {},  # layers with a state alone
    "lfm2": {},  # layers with a state, and layers that attend
    "gemma2": GEMMA,  # a window of 16 tokens
    "gemma3": GEMMA,
}
OTTERS = "Otters eat fish, and bridges cross rivers. "
SYSTEM = Message("system", "You answer a question from a passage of the user's documents. " * 3)
Turns = list[Message]


@pytest.fixture
def find(tmp_path: Path, tiny_gguf: Callable[..., Path]) -> Callable[[str], Path]:
    """`find(architecture)` is a file with a random model."""

    def make(architecture: str) -> Path:
        if architecture != "mamba":
            return tiny_gguf(architecture, endless=True, **ARCHITECTURES.get(architecture, {}))
        save_mamba(tmp_path / "tiny.gguf")
        return tmp_path / "tiny.gguf"

    return make


def passage(number: int, question: str = "Who?") -> Turns:
    text = f"{number}. " + OTTERS[number:] * (2 + number)
    return [SYSTEM, Message("user", f"{text}\n\n{question}")]


def user(text: str) -> Turns:
    return [Message("user", text)]


def compute_inside(file: Path, text: str, split: int = 0) -> tuple[Any, list[list[int]]]:
    """What transformers computes of the same weights, and the tokens of the text's two parts."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent)
    parts = [tokenizer(part).input_ids for part in (text[:split], text[split:])]
    if file.with_name("config.json").is_file():
        options = {"attn_implementation": "eager", "output_attentions": True}
        inside = transformers.AutoModelForCausalLM.from_pretrained(file.parent, **options)
    else:
        inside = save_mamba(file)
    with torch.inference_mode():
        return inside(torch.tensor([parts[0] + parts[1]])), parts


@pytest.mark.parametrize("architecture", ["mamba", "lfm2"])
async def test_likelihood_is_that_of_transformers(find, open_model, full_precision, architecture):
    file, prefix, text = find(architecture), "Who signed the treaty? ", OTTERS * 3
    computed, (before, after) = compute_inside(file, prefix + text, len(prefix))
    odds = computed.logits[0].log_softmax(-1)[len(before) - 1 : -1]
    expected = odds[range(len(after)), after].tolist()
    assert await likelihood(open_model(file), prefix, text) == pytest.approx(expected, abs=1e-4)


async def test_attention_is_the_mean_of_the_layers_that_attend(find, open_model):
    file = find("lfm2")
    model = open_model(file)
    for text in (OTTERS * 3, OTTERS * 2 + "Who?", OTTERS * 3 + "Who?"):
        computed, _ = compute_inside(file, text)
        [row] = [each for each in computed.attentions if each is not None]
        expected = row[0, :, -1].mean(0).tolist()
        spans = await model.token_spans(text)
        assert await model.attention(text, spans) == pytest.approx(expected, abs=2e-3)


async def test_a_model_without_attention_does_not_offer_it(find, open_model):
    model = open_model(find("mamba"))
    assert model.capabilities == frozenset(Capability) - {Capability.ATTENTION}
    with pytest.raises(MissingCapability, match="gives no attention"):
        await model.attention(OTTERS, [(0, 6)])


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


async def test_a_hybrid_model_reads_hardly_more_than_a_plain_one(find, open_model, batches):
    """Six passages behind one instruction; then whether each says the answer; then a new turn."""
    said, reply = "Who?\nNobody. Is that said?", Message("assistant", "Nobody.")
    steps = [
        [passage(number) for number in range(6)],
        [passage(number, said) for number in range(6)],
        [[*passage(number), reply, *user("Why?")] for number in range(6)],
    ]
    read: dict[str, list[int]] = {"llama": [], "lfm2": []}
    for architecture, counts in read.items():
        model = open_model(find(architecture), context_tokens=4096)
        for step in steps:
            batches.clear()
            found = await asyncio.gather(*(ask(model, turns, max_tokens=1) for turns in step))
            usages = [each.usage for each in found]
            counts.append(sum(each.input_tokens - each.cached_tokens for each in usages))
            assert counts[-1] == sum(batches)
    first, *later = zip(*read.values(), strict=True)
    assert first[1] <= 1.2 * first[0]
    # The last tokens of what was read before, at most 32 of each, are read again.
    assert all(plain <= hybrid <= plain + 6 * 32 for plain, hybrid in later)


async def test_what_many_begin_with_is_kept_longest(find, open_model):
    """The states of eight answers in progress and of their prompts take all the room there is."""
    model = open_model(find("lfm2"), context_tokens=4096)
    for first in (100, 108):
        turns = [[SYSTEM, *user(f"{first + number}. {OTTERS * 5}")] for number in range(8)]
        found = await asyncio.gather(*(ask(model, each, max_tokens=30) for each in turns))
    assert all(each.usage.cached_tokens > 100 for each in found)  # tokens of the first message
