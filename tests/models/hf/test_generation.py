"""Generation: a batch gives what each request alone would; text, ends, failures."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from colligate.errors import ContextTooSmall, ServerFailed
from colligate.models.decoding import GeneratedText, GenerationRequest, PassStopped
from colligate.models.hf.generate import BatchGenerator
from support.tiny_models import ARCHITECTURES, TinyModel, finish

# Of different lengths, within and beyond the sliding windows (16) of those that have one.
PROMPTS = [
    [17, 80, 31],
    [5, 80, 31, 200, 17, 9, 44, 120] * 5,
    [99, 20, 240, 33, 61, 7, 18, 150, 71, 12, 40],
    [210, 64, 8, 19] * 6,
    [33, 34, 35, 36, 37, 38],
]


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
    requests = [
        GenerationRequest(ids, count)
        for ids, count in zip(PROMPTS, [30, 12, 25, 3, 18], strict=True)
    ]
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


def test_long_answers_outgrow_their_room_and_results_are_kept(tiny):
    short, *long = requests = [
        GenerationRequest(PROMPTS[4], 2),
        GenerationRequest(PROMPTS[0], 280),
        GenerationRequest(PROMPTS[2], 260),
    ]
    generator = start(tiny, *requests)
    texts = [finish(generator, request).text for request in long]
    tiny.reset()
    texts.insert(0, finish(generator, short).text)
    assert not tiny.read  # it was answered before it was asked for
    assert texts == [expected(tiny, r.ids, r.max_tokens) for r in requests]


def test_requests_from_many_threads(tiny):
    generator = start(tiny, limit=4)
    requests = [GenerationRequest(ids, 10 + n) for n, ids in enumerate(PROMPTS * 3)]
    with ThreadPoolExecutor(1) as model, ThreadPoolExecutor(8) as callers:

        def call(request: GenerationRequest) -> str:
            generator.submit(request)
            return model.submit(finish, generator, request).result().text

        texts = list(callers.map(call, requests))
    assert texts == [expected(tiny, r.ids, r.max_tokens) for r in requests]


# Choosing


def test_a_seed_makes_an_answer_repeatable_in_any_batch(tiny):
    def request(seed: int | None) -> GenerationRequest:
        return GenerationRequest(PROMPTS[1], 25, temperature=1.0, seed=seed)

    alone = answer(tiny, PROMPTS[1], 25, temperature=1.0, seed=3).text
    requests = [request(seed) for seed in (4, 3, None, -1, 1 << 70, None)]
    other = GenerationRequest(PROMPTS[0], 30, temperature=2.0, seed=3)
    generator = start(tiny, other, *requests)
    texts = [finish(generator, each).text for each in requests]
    assert texts[1] == alone
    assert len(set(texts)) == 6


def test_a_low_temperature_is_greedy_and_the_configuration_changes_nothing(tiny):
    config = tiny.runtime.model.generation_config
    before = config.to_dict()
    config.update(do_sample=True, temperature=0.1, top_k=1, repetition_penalty=5.0)
    try:
        greedy = expected(tiny, PROMPTS[1], 20)
        assert answer(tiny, PROMPTS[1], 20).text == greedy
        assert answer(tiny, PROMPTS[1], 20, temperature=1e-40, seed=1).text == greedy
        drawn = {answer(tiny, PROMPTS[1], 20, temperature=1.0, seed=s).text for s in range(4)}
        assert len(drawn) == 4
    finally:
        config.update(**before)


# Ends


@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_max_tokens_is_exact(tiny, count):
    tiny.reset()
    made = answer(tiny, PROMPTS[1], count)
    assert (made.output_tokens, made.finish_reason) == (count, "length")
    assert (made.input_tokens, bool(made.text)) == (len(PROMPTS[1]), count > 0)
    assert len(tiny.read) == count


def test_a_full_window_ends_an_answer_and_not_the_others(tiny_folder):
    tiny = TinyModel(tiny_folder("llama"), context=48, mute=True)
    requests = [
        GenerationRequest(PROMPTS[1], 30),
        GenerationRequest(PROMPTS[0], 20),
        GenerationRequest([7] * 48, 5),
    ]
    generator = start(tiny, *requests)
    answers = [finish(generator, request) for request in requests]
    assert [each.output_tokens for each in answers] == [8, 20, 0]
    assert {each.finish_reason for each in answers} == {"length"}


@pytest.mark.parametrize(
    ("configured", "end"),
    [
        ("as saved", "<|im_end|>"),
        ([5, 80], 80),
        (None, "<|im_end|>"),
        ("as saved", "<|endoftext|>"),
    ],
    ids=["configuration", "list", "tokenizer", "turn"],
)
def test_an_end_token_ends_the_answer(tiny, configured, end):
    token = end if isinstance(end, int) else tiny.tokenizer.convert_tokens_to_ids(end)
    pieces: list[str] = []

    def change(logits: torch.Tensor) -> None:
        logits[..., 40 if len(pieces) < 2 else token] = 1e9

    with pytest.MonkeyPatch.context() as patch, tiny.changing_logits(change):
        if configured != "as saved":
            patch.setattr(tiny.runtime.model.generation_config, "eos_token_id", configured)
        made = answer(tiny, PROMPTS[0], 9, on_piece=pieces.append)
    assert made.text == "".join(pieces) == tiny.tokenizer.decode([40, 40])
    assert (made.finish_reason, made.output_tokens) == ("stop", 3)


# Text


def test_control_tokens_are_no_text(tiny):
    begin = tiny.tokenizer.convert_tokens_to_ids("<|im_start|>")
    with tiny.changing_logits(lambda logits: logits[..., begin].fill_(1e9)):
        made = answer(tiny, PROMPTS[0], 3)
    assert (made.text, made.output_tokens) == ("", 3)


# Failures


def test_giving_up_while_decoding_leaves_the_others_alone(tiny):
    pieces: list[str] = []

    def give_up(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 3:
            stopped.halt.set()

    stopped = GenerationRequest(PROMPTS[1], 40, on_piece=give_up)
    other, waiting = GenerationRequest(PROMPTS[0], 25), GenerationRequest(PROMPTS[2], 25)
    waiting.halt.set()
    generator = start(tiny, stopped, other, waiting)
    for request in (stopped, waiting):
        with pytest.raises(PassStopped):
            finish(generator, request)
    assert len(pieces) == 3
    assert finish(generator, other).text == expected(tiny, PROMPTS[0], 25)


def test_giving_up_while_the_prompt_is_read(tiny_folder):
    tiny = TinyModel(tiny_folder("llama"), mute=True)
    stopped, other = GenerationRequest(PROMPTS[1], 20), GenerationRequest(PROMPTS[0], 20)
    layers: list[int] = []

    def hook(layer: Any, inputs: tuple[Any, ...]) -> None:
        if inputs[0].shape[1] == len(PROMPTS[1]):
            layers.append(1)
            stopped.halt.set()

    first, second = tiny.runtime.model.get_decoder().layers
    handles = [layer.register_forward_pre_hook(hook) for layer in (first, second)]
    generator = start(tiny, other, stopped)
    with pytest.raises(PassStopped):
        finish(generator, stopped)
    for handle in handles:
        handle.remove()
    assert layers == [1]  # the second was not reached
    assert finish(generator, other).text == expected(tiny, PROMPTS[0], 20)
    again = answer(tiny, PROMPTS[1], 20)
    assert (again.cached_tokens, again.text) == (0, expected(tiny, PROMPTS[1], 20))


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
