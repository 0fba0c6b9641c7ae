"""Generation: a batch gives what each request alone would; text, ends, failures."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from colligate.errors import ContextTooSmall, ServerFailed
from colligate.models.decoding import GeneratedText, GenerationRequest
from colligate.models.hf.generate import BatchGenerator
from support.tiny_models import ARCHITECTURES, TinyModel, finish

# Of different lengths, within and beyond the sliding windows (16) of those that have one.
PROMPTS = [[17, 80, 31], [5, 80, 31, 200, 17, 9, 44, 120] * 5]
PROMPTS += [[99, 20, 240, 33, 61, 7, 18, 150, 71, 12, 40], [210, 64, 8, 19] * 6, [*range(33, 39)]]

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def tiny(tiny_folder: Callable[..., Path]) -> TinyModel:
    return TinyModel(tiny_folder("llama"), mute=True)


def start(model: TinyModel, *requests: GenerationRequest, limit: int = 8) -> BatchGenerator:
    generator = BatchGenerator(model.runtime, model.tokenizer, limit)
    for request in requests:
        generator.submit(request)
    return generator


def answer(model: TinyModel, ids: list[int], max_tokens: int = 99, **options: Any) -> GeneratedText:
    request = GenerationRequest(ids, max_tokens, **options)
    return finish(start(model, request), request)


def expected(model: TinyModel, ids: list[int], count: int) -> str:
    """The most likely continuation, by passes over the whole text without any cache."""
    text = list(ids)
    with torch.inference_mode():
        for _ in range(count):
            text.append(int(model.runtime.model(torch.tensor([text])).logits[0, -1].argmax()))
    written: str = model.tokenizer.decode(text[len(ids) :], skip_special_tokens=True)
    return written.rstrip("\ufffd")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_together_is_as_alone(tiny_folder, architecture):
    # With weights of their own for the logits: random models otherwise repeat what they read.
    tiny = TinyModel(tiny_folder(architecture, tie_word_embeddings=False), mute=True)
    requests = [*map(GenerationRequest, PROMPTS, [30, 12, 25, 3, 18])]
    # Two begin together; each of the others joins while those before it are in progress.
    generator, waiting = start(tiny, *requests[:2]), requests[2:]

    def join(_piece: str) -> None:
        if waiting:
            generator.submit(waiting.pop(0))

    for request in requests[:2]:
        request.on_piece = join
    texts = [finish(generator, request).text for request in requests]
    assert all(texts)
    assert texts == [expected(tiny, r.ids, r.max_tokens) for r in requests]


def test_at_most_so_many_are_computed_together(tiny):
    sizes: list[int] = []
    requests = [GenerationRequest(ids, 12) for ids in PROMPTS]
    generator = start(tiny, *requests, limit=3)
    with tiny.changing_logits(lambda logits: sizes.append(len(logits))):
        texts = [finish(generator, request).text for request in requests]
    assert texts == [expected(tiny, ids, 12) for ids in PROMPTS]
    assert max(sizes) == 3
    assert sizes.count(3) > 8


def test_a_full_window_ends_an_answer_and_not_the_others(tiny_folder):
    tiny = TinyModel(tiny_folder("llama"), context=48, mute=True)
    requests = [*map(GenerationRequest, [PROMPTS[1], PROMPTS[0], [7] * 48], [30, 20, 5])]
    generator = start(tiny, *requests)
    answers = [finish(generator, request) for request in requests]
    assert [each.output_tokens for each in answers] == [8, 20, 0]
    assert {each.finish_reason for each in answers} == {"length"}


@pytest.mark.parametrize(
    ("configured", "end"),
    [("saved", "<|im_end|>"), ([5, 80], 80), (None, "<|im_end|>"), ("saved", "<|endoftext|>")],
    ids=["configuration", "list", "tokenizer", "turn"],
)
def test_an_end_token_ends_the_answer(tiny, configured, end):
    token = end if isinstance(end, int) else tiny.tokenizer.convert_tokens_to_ids(end)
    pieces: list[str] = []

    def change(logits: torch.Tensor) -> None:
        logits[..., 40 if len(pieces) < 2 else token] = 1e9

    with pytest.MonkeyPatch.context() as patch, tiny.changing_logits(change):
        if configured != "saved":
            patch.setattr(tiny.runtime.model.generation_config, "eos_token_id", configured)
        made = answer(tiny, PROMPTS[0], 9, on_piece=pieces.append)
    assert made.text == "".join(pieces) == tiny.tokenizer.decode([40, 40])
    assert (made.finish_reason, made.output_tokens) == ("stop", 3)


def test_control_tokens_are_no_text(tiny):
    begin = tiny.tokenizer.convert_tokens_to_ids("<|im_start|>")
    with tiny.changing_logits(lambda logits: logits[..., begin].fill_(1e9)):
        made = answer(tiny, PROMPTS[0], 3)
    assert (made.text, made.output_tokens) == ("", 3)


def raise_lookup(_piece: str) -> None:
    raise LookupError("nobody listens")


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"ids": [7] * 513}, ContextTooSmall, "513 tokens"),
        ({"on_piece": raise_lookup}, LookupError, "nobody"),
        ({}, ServerFailed, "not finite"),
    ],
    ids=["prompt", "listener", "logits"],
)
def test_a_failing_request_fails_alone(tiny, options, error, why):
    def change(logits: torch.Tensor) -> None:
        if len(logits) == 2 and not options:
            logits[1, -1, 7] = torch.nan

    good = GenerationRequest(PROMPTS[0], 20)
    bad = GenerationRequest(**{"ids": PROMPTS[1], "max_tokens": 20, **options})
    generator = start(tiny, good, bad)
    with tiny.changing_logits(change):
        with pytest.raises(error, match=why):
            finish(generator, bad)
        assert finish(generator, good).text == expected(tiny, PROMPTS[0], 20)


def test_memory_that_runs_out_fails_those_it_was_for_and_is_freed(tiny):
    held: list[weakref.ref[torch.Tensor]] = []

    def run_out(logits: torch.Tensor) -> None:
        if len(logits) == 2:
            large = torch.zeros(10)
            held.append(weakref.ref(large))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    *failing, last = [GenerationRequest(PROMPTS[n], 20) for n in (0, 1, 2)]
    generator = start(tiny, *failing, last, limit=2)
    with tiny.changing_logits(run_out):
        for request in failing:
            with pytest.raises(ServerFailed, match="out of memory"):
                finish(generator, request)
    gc.collect()
    assert held[0]() is None
    assert finish(generator, last).text == expected(tiny, PROMPTS[2], 20)
