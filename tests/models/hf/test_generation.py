"""Generation: a batch gives what each request alone would; text, ends, failures."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import llguidance
import llguidance.hf
import pytest
import tokenizers
import torch
import transformers
from hypothesis import example, given, settings
from hypothesis import strategies as st

from colligate.errors import ContextTooSmall, RequestRefused, ServerFailed
from colligate.models.decoding import GeneratedText, GenerationRequest, PassStopped
from colligate.models.grammar import Grammar
from colligate.models.hf.generate import BatchGenerator
from support.tiny_models import ARCHITECTURES, TinyModel

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
    return start(model, request).run(request)


def expected(model: TinyModel, ids: list[int], count: int) -> str:
    """The most likely continuation, by passes over the whole text without any cache."""
    text = list(ids)
    with torch.inference_mode():
        for _ in range(count):
            text.append(int(model.runtime.model(torch.tensor([text])).logits[0, -1].argmax()))
    written: str = model.tokenizer.decode(text[len(ids) :], skip_special_tokens=True)
    return written.rstrip("\ufffd")


def literal(tokenizer: Any, text: str) -> Grammar:
    """A grammar that allows only this text, in any tokens."""
    tokens = llguidance.hf.from_tokenizer(tokenizer)
    escaped = "".join(rf"\u{ord(c):04x}" if c < " " or c in '"\\\x7f' else c for c in text)
    matcher = llguidance.LLMatcher(tokens, f'start: "{escaped}"', log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return Grammar(matcher)


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
    texts = [generator.run(request).text for request in requests]
    assert all(texts)
    assert texts == [expected(tiny, r.ids, r.max_tokens) for r in requests]


def test_at_most_so_many_are_computed_together(tiny):
    sizes: list[int] = []
    requests = [GenerationRequest(ids, 12) for ids in PROMPTS]
    generator = start(tiny, *requests, limit=3)
    with tiny.changing_logits(lambda logits: sizes.append(len(logits))):
        texts = [generator.run(request).text for request in requests]
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
    texts = [generator.run(request).text for request in long]
    tiny.reset()
    texts.insert(0, generator.run(short).text)
    assert not tiny.read  # it was answered before it was asked for
    assert texts == [expected(tiny, r.ids, r.max_tokens) for r in requests]


def test_requests_from_many_threads(tiny):
    generator = start(tiny, limit=4)
    requests = [GenerationRequest(ids, 10 + n) for n, ids in enumerate(PROMPTS * 3)]
    with ThreadPoolExecutor(1) as model, ThreadPoolExecutor(8) as callers:

        def call(request: GenerationRequest) -> str:
            generator.submit(request)
            return model.submit(generator.run, request).result().text

        texts = list(callers.map(call, requests))
    assert texts == [expected(tiny, r.ids, r.max_tokens) for r in requests]


def test_a_request_never_submitted_is_an_error_and_no_endless_wait(tiny):
    with pytest.raises(ValueError, match="submitted"):
        start(tiny).run(GenerationRequest(PROMPTS[0], 5))


# Choosing


def test_a_seed_makes_an_answer_repeatable_in_any_batch(tiny):
    def request(seed: int | None) -> GenerationRequest:
        return GenerationRequest(PROMPTS[1], 25, temperature=1.0, seed=seed)

    alone = answer(tiny, PROMPTS[1], 25, temperature=1.0, seed=3).text
    requests = [request(seed) for seed in (4, 3, None, -1, 1 << 70, None)]
    other = GenerationRequest(PROMPTS[0], 30, temperature=2.0, seed=3)
    generator = start(tiny, other, *requests)
    texts = [generator.run(each).text for each in requests]
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


def test_draws_follow_the_probabilities(tiny):
    chosen = torch.full((403,), -torch.inf)
    tokens = [tiny.tokenizer.convert_tokens_to_ids(letter) for letter in "abc"]
    chosen[tokens] = torch.log(torch.tensor([0.25, 0.5, 0.25]))
    with tiny.changing_logits(lambda logits: logits.copy_(chosen[: logits.shape[-1]])):
        text = answer(tiny, PROMPTS[0], 400, temperature=0.5, seed=1).text
    # At half the temperature odds are squared: 1 to 4 to 1.
    assert set(text) == set("abc")
    assert text.count("b") == pytest.approx(400 * 4 / 6, rel=0.15)
    assert text.count("a") == pytest.approx(400 / 6, rel=0.4)


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
    answers = [generator.run(request) for request in requests]
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

TEXTS = st.text(st.sampled_from("abS TOP.é€😀\n\"'<"), min_size=1, max_size=16)


@settings(max_examples=40, deadline=None)
@given(text=TEXTS, cuts=st.lists(st.tuples(st.integers(0, 15), st.integers(1, 5)), max_size=3))
@example(text="ab STO", cuts=[])  # held back up to its end
def test_any_text_in_any_tokens_streams_up_to_what_stops_it(tiny, text, cuts):
    stop = (*(text[start : start + length] for start, length in cuts), "STOP", "")
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s and s in text]
    whole = text[: min(ends)[1]] if ends else text
    for seed in range(2):
        pieces: list[str] = []
        made = answer(
            tiny, PROMPTS[0], temperature=1.0, seed=seed, stop=stop,
            grammar=literal(tiny.tokenizer, text), on_piece=pieces.append,
        )  # fmt: skip
        assert made.text == "".join(pieces) == whole
        assert made.finish_reason == "stop"
        assert all(pieces)


def test_of_several_strings_the_one_complete_first_ends_the_answer(tiny):
    assert " quick" in tiny.tokenizer.batch_decode([[i] for i in range(400)])  # in one token too
    for seed in range(6):
        made = answer(
            tiny, PROMPTS[0], 9, temperature=2.0, seed=seed, stop=(" quick", "ui"),
            grammar=literal(tiny.tokenizer, " quick fox"),
        )  # fmt: skip
        assert made.text == " q"


def test_pieces_come_as_soon_as_they_are_certain(tiny):
    text = "ab<x<y<endless"
    pieces: list[str] = []
    made = answer(
        tiny, PROMPTS[0], temperature=9.0, seed=1, stop=("<end>",),
        grammar=literal(tiny.tokenizer, text), on_piece=pieces.append,
    )  # fmt: skip
    assert made.text == text
    assert pieces[0][0] == "a"
    assert not any(piece.endswith("<") for piece in pieces)
    assert len(pieces) > 4


@pytest.mark.parametrize("text", ["né", "n€", "n😀"])
def test_a_character_cut_by_the_limit_is_left_out(tiny, text):
    tokens = tiny.tokenizer.encode(text)
    assert len(tokens) == 1 + len(text[1:].encode())  # bytes, one by one
    made = answer(tiny, PROMPTS[0], len(tokens) - 1, grammar=literal(tiny.tokenizer, text))
    assert (made.text, made.finish_reason) == ("n", "length")


def test_control_tokens_are_no_text(tiny):
    begin = tiny.tokenizer.convert_tokens_to_ids("<|im_start|>")
    with tiny.changing_logits(lambda logits: logits[..., begin].fill_(1e9)):
        made = answer(tiny, PROMPTS[0], 3)
    assert (made.text, made.output_tokens) == ("", 3)


def test_blanks_of_sentencepiece_are_kept(tiny, monkeypatch):
    tokenizer = sentencepiece()
    monkeypatch.setattr(tiny, "tokenizer", tokenizer)
    for text in (" yes it is", "yes\u20ac it", "a  b \U0001f600 c"):
        pieces: list[str] = []
        made = answer(
            tiny, tokenizer.backend_tokenizer.encode("The answer is").ids, temperature=1.0, seed=1,
            grammar=literal(tokenizer, text), on_piece=pieces.append,
        )  # fmt: skip
        assert made.text == "".join(pieces) == text
        assert len(pieces) > 2


def sentencepiece() -> Any:
    """A tokenizer such as Llama 2's: blanks within tokens, bytes for what it has no token for."""
    letters = ["▁", *"Theanswrisytbc", "▁y", "is", "▁is", "▁it"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    model = tokenizers.models.BPE(
        {token: index for index, token in enumerate(tokens)},
        [("▁", "y"), ("i", "s"), ("▁", "is")],
        unk_token="<unk>",
        byte_fallback=True,
        fuse_unk=True,
    )
    backend, normalizers, decoders = (
        tokenizers.Tokenizer(model),
        tokenizers.normalizers,
        tokenizers.decoders,
    )
    backend.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


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
            generator.run(request)
    assert len(pieces) == 3
    assert generator.run(other).text == expected(tiny, PROMPTS[0], 25)


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
        generator.run(stopped)
    for handle in handles:
        handle.remove()
    assert layers == [1]  # the second was not reached
    assert generator.run(other).text == expected(tiny, PROMPTS[0], 20)
    again = answer(tiny, PROMPTS[1], 20)
    assert (again.cached_tokens, again.text) == (0, expected(tiny, PROMPTS[1], 20))


def raise_lookup(_piece: str) -> None:
    raise LookupError("nobody listens")


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"ids": [7] * 513}, ContextTooSmall, "513 tokens"),
        ({"max_tokens": -1}, RequestRefused, "below 0"),
        ({"temperature": -0.5}, RequestRefused, "below 0"),
        ({"on_piece": raise_lookup}, LookupError, "nobody"),
        ({}, ServerFailed, "not finite"),
    ],
    ids=["prompt", "max_tokens", "temperature", "listener", "logits"],
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
            generator.run(bad)
        assert generator.run(good).text == expected(tiny, PROMPTS[0], 20)


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
                generator.run(request)
    gc.collect()
    assert held[0]() is None
    assert generator.run(last).text == expected(tiny, PROMPTS[2], 20)
