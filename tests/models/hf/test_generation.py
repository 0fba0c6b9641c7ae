"""Generation: what is decoded together is what each alone would be; text, ends, failures."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import llguidance
import llguidance.hf
import pytest
import tokenizers
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.errors import ContextTooSmall, RequestRefused, ServerFailed, WeightsUnavailable
from colligate.models.hf.generate import Generated, Generator, Request
from colligate.models.hf.grammar import Grammar
from colligate.models.hf.loading import Runtime, Stopped, find, load_tokenizer
from colligate.models.hf.prompts import Prompts

CONTROL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]

# Of different lengths, within and beyond the sliding windows (16) of those that have one.
PROMPTS = [
    [17, 80, 31],
    [5, 80, 31, 200, 17, 9, 44, 120] * 5,
    [99, 20, 240, 33, 61, 7, 18, 150, 71, 12, 40],
    [210, 64, 8, 19] * 6,
    [33, 34, 35, 36, 37, 38],
]


pytestmark = pytest.mark.usefixtures("one_thread")


class Tiny:
    """A random model that never ends an answer by itself, and what is asked of it."""

    def __init__(self, folder: Path, context: int = 512) -> None:
        source = find(str(folder))
        self.runtime = Runtime(source, "hf:tiny", context=context, dtype="float32")
        self.tokenizer = load_tokenizer(source)
        self.prompts = Prompts(self.tokenizer, "hf:tiny")
        self.control = dict(
            zip(CONTROL, self.tokenizer.convert_tokens_to_ids(CONTROL), strict=True)
        )
        control = torch.tensor(list(self.control.values()))
        self.on_logits(lambda logits: logits.index_fill_(-1, control, -1e9))

    def generator(self, most: int = 8) -> Generator:
        return Generator(self.runtime, self.prompts, most)

    def run(self, request: Request) -> Generated:
        generator = self.generator()
        generator.submit(request)
        return generator.run(request)

    def expected(self, ids: list[int], count: int) -> str:
        """The likeliest continuation, by passes over the whole text without any cache."""
        text = list(ids)
        with torch.inference_mode():
            for _ in range(count):
                token = int(self.runtime.model(torch.tensor([text])).logits[0, -1].argmax())
                text.append(token)
        written: str = self.tokenizer.decode(text[len(ids) :], skip_special_tokens=True)
        return written.rstrip("\ufffd")

    def literal(self, text: str) -> Grammar:
        """Leaves nothing to write but this text, in whatever tokens."""
        return literal(self.tokenizer, text)

    def on_logits(self, change: Callable[[torch.Tensor], object]) -> Any:
        """Let `change` have the logits of every pass, to change in place."""

        def hook(_module: Any, _inputs: Any, logits: torch.Tensor) -> None:
            change(logits)

        return self.runtime.model.get_output_embeddings().register_forward_hook(hook)

    @contextmanager
    def changing_logits(self, change: Callable[[torch.Tensor], object]) -> Iterator[None]:
        handle = self.on_logits(change)
        try:
            yield
        finally:
            handle.remove()


def literal(tokenizer: Any, text: str) -> Grammar:
    tokens = llguidance.hf.from_tokenizer(tokenizer)
    escaped = "".join(rf"\u{ord(c):04x}" if c < " " or c in '"\\\x7f' else c for c in text)
    matcher = llguidance.LLMatcher(tokens, f'start: "{escaped}"', log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return Grammar(matcher)


@pytest.fixture(scope="module")
def tiny(tiny_folder: Callable[..., Path]) -> Tiny:
    return Tiny(tiny_folder("llama"))


ARCHITECTURES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3"]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_together_is_as_alone(tiny_folder: Callable[..., Path], architecture: str) -> None:
    # With weights of their own for the logits, else random models say again what they read.
    tiny = Tiny(tiny_folder(architecture, tie_word_embeddings=False))
    counts = [30, 12, 25, 3, 18]
    expected = [tiny.expected(*pair) for pair in zip(PROMPTS, counts, strict=True)]
    assert all(expected)

    generator = tiny.generator()
    requests = [Request(*pair) for pair in zip(PROMPTS, counts, strict=True)]
    # Two begin together; each of the others joins while those before it are under way.
    waiting = requests[2:]

    def join(_piece: str) -> None:
        if waiting:
            generator.submit(waiting.pop(0))

    for request in requests[:2]:
        request.on_piece = join
        generator.submit(request)
    assert [generator.run(request).text for request in requests] == expected


def test_rows_are_computed_together_up_to_the_most(tiny: Tiny) -> None:
    sizes: list[int] = []
    requests = [Request(ids, 12) for ids in PROMPTS]
    generator = tiny.generator(most=3)
    for request in requests:
        generator.submit(request)
    with tiny.changing_logits(lambda logits: sizes.append(len(logits))):
        texts = [generator.run(request).text for request in requests]
    assert texts == [tiny.expected(ids, 12) for ids in PROMPTS]
    assert max(sizes) == 3
    assert sizes.count(3) > 8


def test_a_long_answer_outgrows_its_room(tiny: Tiny) -> None:
    generator = tiny.generator()
    requests = [Request(PROMPTS[0], 280), Request(PROMPTS[2], 260)]
    for request in requests:
        generator.submit(request)
    texts = [generator.run(request).text for request in requests]
    assert texts == [tiny.expected(PROMPTS[0], 280), tiny.expected(PROMPTS[2], 260)]


def test_results_are_kept_until_asked_for(tiny: Tiny) -> None:
    generator = tiny.generator()
    short, long = Request(PROMPTS[0], 2), Request(PROMPTS[1], 20)
    generator.submit(short)
    generator.submit(long)
    generator.run(long)
    passes: list[int] = []
    with tiny.changing_logits(lambda logits: passes.append(1)):
        assert generator.run(short).text == tiny.expected(PROMPTS[0], 2)
    assert len(passes) == 2  # of `expected` alone


def test_requests_from_many_threads(tiny: Tiny) -> None:
    generator = tiny.generator(most=4)
    requests = [Request(ids, 10 + n) for n, ids in enumerate(PROMPTS * 3)]
    with ThreadPoolExecutor(1) as model, ThreadPoolExecutor(8) as callers:

        def call(request: Request) -> str:
            generator.submit(request)
            return model.submit(generator.run, request).result().text

        texts = list(callers.map(call, requests))
    assert texts == [tiny.expected(r.ids, r.max_tokens) for r in requests]


def test_a_request_never_submitted_is_an_error_and_no_endless_wait(tiny: Tiny) -> None:
    with pytest.raises(ValueError, match="submitted"):
        tiny.generator().run(Request(PROMPTS[0], 5))


def test_adapters_are_kept_apart(tiny_folder: Callable[..., Path], tmp_path: Path) -> None:
    import peft

    folder = tiny_folder("llama")
    keys = [""]
    tiny = Tiny(folder)
    for seed in (1, 2):
        torch.manual_seed(seed)
        base = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        config = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        with warnings.catch_warnings(action="ignore"):  # peft's own, of making one
            peft.get_peft_model(base, config).save_pretrained(tmp_path / str(seed))
        keys.append(tiny.runtime.adapters.load(tmp_path / str(seed)))
    expected = []
    for key in keys:
        tiny.runtime.adapters.use(key)
        expected.append(tiny.expected(PROMPTS[1], 15))
    assert len(set(expected)) == 3

    generator = tiny.generator()
    requests = [Request(PROMPTS[1], 15, adapter=key) for key in (*keys, *keys)]
    unknown = Request(PROMPTS[1], 15, adapter="unknown")
    for request in (unknown, *requests):
        generator.submit(request)
    assert [generator.run(request).text for request in requests] == expected * 2
    with pytest.raises(WeightsUnavailable):
        generator.run(unknown)


# Choosing


def test_a_seed_makes_an_answer_repeatable_whoever_shares_the_batch(tiny: Tiny) -> None:
    def request(seed: int | None) -> Request:
        return Request(PROMPTS[1], 25, temperature=1.0, seed=seed)

    alone = tiny.run(request(3)).text
    generator = tiny.generator()
    requests = [request(4), request(3), request(None), request(-1), request(1 << 70), request(None)]
    for each in (Request(PROMPTS[0], 30, temperature=2.0, seed=3), *requests):
        generator.submit(each)
    texts = [generator.run(each).text for each in requests]
    assert texts[1] == alone
    assert len(set(texts)) == 6


def test_a_low_temperature_is_the_likeliest_and_the_configuration_changes_nothing(
    tiny: Tiny,
) -> None:
    config = tiny.runtime.model.generation_config
    before = config.to_dict()
    config.update(do_sample=True, temperature=0.1, top_k=1, repetition_penalty=5.0)
    try:
        expected = tiny.expected(PROMPTS[1], 20)
        assert tiny.run(Request(PROMPTS[1], 20)).text == expected
        assert tiny.run(Request(PROMPTS[1], 20, temperature=1e-40, seed=1)).text == expected
        drawn = {tiny.run(Request(PROMPTS[1], 20, temperature=1.0, seed=s)).text for s in range(4)}
        assert len(drawn) == 4
    finally:
        config.update(**before)


def test_draws_follow_the_probabilities(tiny: Tiny) -> None:
    chosen = torch.full((403,), -torch.inf)
    tokens = [tiny.tokenizer.convert_tokens_to_ids(letter) for letter in "abc"]
    chosen[tokens] = torch.log(torch.tensor([0.25, 0.5, 0.25]))
    with tiny.changing_logits(lambda logits: logits.copy_(chosen[: logits.shape[-1]])):
        text = tiny.run(Request(PROMPTS[0], 400, temperature=0.5, seed=1)).text
    # At half the temperature odds are squared: 1 to 4 to 1.
    assert set(text) == set("abc")
    assert text.count("b") == pytest.approx(400 * 4 / 6, rel=0.15)
    assert text.count("a") == pytest.approx(400 / 6, rel=0.4)


# Ends


@pytest.mark.parametrize("count", [1, 2, 7])
def test_max_tokens_is_exact(tiny: Tiny, count: int) -> None:
    passes: list[int] = []
    with tiny.changing_logits(lambda _: passes.append(1)):
        answer = tiny.run(Request(PROMPTS[1], count))
    assert (answer.output_tokens, answer.finish_reason) == (count, "length")
    assert len(passes) == count


def test_no_tokens_at_all(tiny: Tiny) -> None:
    answer = tiny.run(Request(PROMPTS[1], 0))
    assert (answer.text, answer.finish_reason) == ("", "length")
    assert (answer.input_tokens, answer.output_tokens) == (len(PROMPTS[1]), 0)


@pytest.mark.parametrize("wrong", [{"max_tokens": -1}, {"temperature": -0.5}])
def test_numbers_below_0_are_refused(tiny: Tiny, wrong: dict[str, Any]) -> None:
    with pytest.raises(RequestRefused, match="below 0"):
        tiny.run(Request(PROMPTS[0], **{"max_tokens": 5, **wrong}))


def test_a_full_window_ends_an_answer_and_not_the_others(tiny_folder: Callable[..., Path]) -> None:
    tiny = Tiny(tiny_folder("llama"), context=48)
    generator = tiny.generator()
    requests = [Request(PROMPTS[1], 30), Request(PROMPTS[0], 20), Request([7] * 48, 5)]
    for request in requests:
        generator.submit(request)
    answers = [generator.run(request) for request in requests]
    assert [answer.output_tokens for answer in answers] == [8, 20, 0]
    assert {answer.finish_reason for answer in answers} == {"length"}


@pytest.mark.parametrize("said", ["configuration", "list", "tokenizer", "turn"])
def test_an_end_token_ends_the_answer(tiny: Tiny, said: str) -> None:
    config = tiny.runtime.model.generation_config
    before = config.eos_token_id
    token = {"list": 80, "turn": tiny.control["<|endoftext|>"]}.get(
        said, tiny.control["<|im_end|>"]
    )
    config.eos_token_id = {"list": [5, 80], "tokenizer": None}.get(said, before)
    calls: list[int] = []

    def change(logits: torch.Tensor) -> None:
        calls.append(1)
        logits[..., 40 if len(calls) < 3 else token] = 1e9

    pieces: list[str] = []
    try:
        with tiny.changing_logits(change):
            answer = tiny.run(Request(PROMPTS[0], 9, on_piece=pieces.append))
    finally:
        config.eos_token_id = before
    assert answer.text == "".join(pieces) == tiny.tokenizer.decode([40, 40])
    assert (answer.finish_reason, answer.output_tokens) == ("stop", 3)


# Text

TEXTS = st.text(st.sampled_from("abS TOP.é€😀\n\"'<"), min_size=1, max_size=16)


@settings(max_examples=40, deadline=None)
@given(text=TEXTS, cuts=st.lists(st.tuples(st.integers(0, 15), st.integers(1, 5)), max_size=3))
def test_any_text_in_any_tokens_streams_up_to_what_stops_it(
    tiny: Tiny, text: str, cuts: list[tuple[int, int]]
) -> None:
    stop = (*(text[start : start + length] for start, length in cuts), "STOP", "")
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s and s in text]
    expected = text[: min(ends)[1]] if ends else text
    for seed in range(2):
        pieces: list[str] = []
        request = Request(
            PROMPTS[0], 99, temperature=1.0, seed=seed, stop=stop,
            grammar=tiny.literal(text), on_piece=pieces.append,
        )  # fmt: skip
        answer = tiny.run(request)
        assert answer.text == "".join(pieces) == expected
        assert answer.finish_reason == "stop"
        assert all(pieces)


def test_of_several_strings_the_one_complete_first_ends_the_answer(tiny: Tiny) -> None:
    assert " quick" in tiny.tokenizer.batch_decode([[i] for i in range(400)])  # in one token too
    for seed in range(6):
        request = Request(
            PROMPTS[0], 9, temperature=2.0, seed=seed, stop=(" quick", "ui"),
            grammar=tiny.literal(" quick fox"),
        )  # fmt: skip
        assert tiny.run(request).text == " q"


def test_pieces_come_as_soon_as_they_are_certain(tiny: Tiny) -> None:
    text = "ab<x<y<endless"
    pieces: list[str] = []
    request = Request(
        PROMPTS[0], 99, temperature=9.0, seed=1, stop=("<end>",),
        grammar=tiny.literal(text), on_piece=pieces.append,
    )  # fmt: skip
    assert tiny.run(request).text == text
    assert pieces[0][0] == "a"
    assert not any(piece.endswith("<") for piece in pieces)
    assert len(pieces) > 4


@pytest.mark.parametrize("text", ["né", "n€", "n😀"])
def test_a_character_cut_by_the_limit_is_left_out(tiny: Tiny, text: str) -> None:
    tokens = tiny.tokenizer.encode(text)
    assert len(tokens) == 1 + len(text[1:].encode())  # bytes, one by one
    request = Request(PROMPTS[0], len(tokens) - 1, grammar=tiny.literal(text))
    answer = tiny.run(request)
    assert (answer.text, answer.finish_reason) == ("n", "length")


def test_what_was_held_back_is_text_when_the_answer_ends(tiny: Tiny) -> None:
    pieces: list[str] = []
    request = Request(
        PROMPTS[0], 99, stop=("abcd",), grammar=tiny.literal("ab abc"), on_piece=pieces.append
    )
    assert tiny.run(request).text == "".join(pieces) == "ab abc"


def test_control_tokens_are_no_text(tiny: Tiny) -> None:
    start = tiny.control["<|im_start|>"]
    with tiny.changing_logits(lambda logits: logits[..., start].fill_(1e9)):
        answer = tiny.run(Request(PROMPTS[0], 3))
    assert (answer.text, answer.output_tokens) == ("", 3)


def test_blanks_of_sentencepiece_are_kept(tiny: Tiny) -> None:
    class Pieces:
        tokenizer = sentencepiece()

    generator = Generator(tiny.runtime, Pieces, most=2)  # type: ignore[arg-type]
    encode = Pieces.tokenizer.backend_tokenizer.encode
    for text in (" yes it is", "yes\u20ac it", "a  b \U0001f600 c"):
        pieces: list[str] = []
        request = Request(
            encode("The answer is").ids, 60, temperature=1.0, seed=1,
            grammar=literal(Pieces.tokenizer, text), on_piece=pieces.append,
        )  # fmt: skip
        generator.submit(request)
        assert generator.run(request).text == "".join(pieces) == text
        assert len(pieces) > 2


def sentencepiece() -> Any:
    """A tokenizer such as Llama 2's: blanks within tokens, bytes for what it has no token for."""
    letters = ["▁", *"Theanswrisytbc", "▁y", "is", "▁is", "▁it"]
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    merges = [("▁", "y"), ("i", "s"), ("▁", "is")]
    backend = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            {token: index for index, token in enumerate(tokens)},
            merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    backend.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    backend.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


# What was computed before


def test_a_prompt_that_begins_alike_is_not_computed_again(tiny_folder: Callable[..., Path]) -> None:
    tiny = Tiny(tiny_folder("gemma3", tie_word_embeddings=False))
    first = tiny.run(Request(PROMPTS[1], 6))
    again = tiny.run(Request(PROMPTS[1], 6))
    longer = tiny.run(Request([*PROMPTS[1], 7, 8, 9], 6))
    assert (first.cached_tokens, again.cached_tokens, longer.cached_tokens) == (0, 39, 40)
    assert first.text == again.text == tiny.expected(PROMPTS[1], 6)
    assert longer.text == tiny.expected([*PROMPTS[1], 7, 8, 9], 6)
    assert longer.input_tokens == 43


# Failures


def test_giving_up_while_decoding_leaves_the_others_alone(tiny: Tiny) -> None:
    generator = tiny.generator()
    stopped = Request(PROMPTS[1], 40)
    pieces: list[str] = []

    def give_up(piece: str) -> None:
        pieces.append(piece)
        if len(pieces) == 3:
            stopped.halt.set()

    stopped.on_piece = give_up
    other, waiting = Request(PROMPTS[0], 25), Request(PROMPTS[2], 25)
    waiting.halt.set()
    for request in (stopped, other, waiting):
        generator.submit(request)
    with pytest.raises(Stopped):
        generator.run(stopped)
    assert len(pieces) == 3
    assert generator.run(other).text == tiny.expected(PROMPTS[0], 25)
    with pytest.raises(Stopped):
        generator.run(waiting)


def test_giving_up_while_the_prompt_is_read(tiny_folder: Callable[..., Path]) -> None:
    tiny = Tiny(tiny_folder("llama"))
    generator = tiny.generator()
    stopped, other = Request(PROMPTS[1], 20), Request(PROMPTS[0], 20)
    layers: list[int] = []

    def hook(layer: Any, inputs: tuple[Any, ...]) -> None:
        if inputs[0].shape[1] == len(PROMPTS[1]):
            layers.append(1)
            stopped.halt.set()

    first, second = tiny.runtime.model.get_decoder().layers
    handles = [layer.register_forward_pre_hook(hook) for layer in (first, second)]
    for request in (other, stopped):
        generator.submit(request)
    with pytest.raises(Stopped):
        generator.run(stopped)
    for handle in handles:
        handle.remove()
    assert layers == [1]  # the second was not reached
    assert generator.run(other).text == tiny.expected(PROMPTS[0], 20)
    again = tiny.run(Request(PROMPTS[1], 20))
    assert (again.cached_tokens, again.text) == (0, tiny.expected(PROMPTS[1], 20))


def test_a_prompt_that_does_not_fit_fails_alone(tiny_folder: Callable[..., Path]) -> None:
    tiny = Tiny(tiny_folder("llama"), context=60)
    generator = tiny.generator()
    large, other = Request([7] * 61, 5), Request(PROMPTS[0], 5)
    generator.submit(large)
    generator.submit(other)
    assert generator.run(other).text == tiny.expected(PROMPTS[0], 5)
    with pytest.raises(ContextTooSmall, match="61 tokens"):
        generator.run(large)


def test_a_listener_that_raises_fails_alone(tiny: Tiny) -> None:
    def raising(_piece: str) -> None:
        raise LookupError("nobody listens")

    generator = tiny.generator()
    loud, other = Request(PROMPTS[1], 20, on_piece=raising), Request(PROMPTS[0], 20)
    generator.submit(loud)
    generator.submit(other)
    assert generator.run(other).text == tiny.expected(PROMPTS[0], 20)
    with pytest.raises(LookupError, match="nobody"):
        generator.run(loud)


def test_logits_that_are_no_numbers_fail_alone(tiny: Tiny) -> None:
    def change(logits: torch.Tensor) -> None:
        if len(logits) == 2:
            logits[1, -1, 7] = torch.nan

    generator = tiny.generator()
    good, bad = Request(PROMPTS[0], 20), Request(PROMPTS[1], 20)
    generator.submit(good)
    generator.submit(bad)
    with tiny.changing_logits(change):
        with pytest.raises(ServerFailed, match="not finite"):
            generator.run(bad)
        assert generator.run(good).text == tiny.expected(PROMPTS[0], 20)


def test_memory_that_runs_out_fails_those_it_was_for_and_is_freed(tiny: Tiny) -> None:
    held: list[weakref.ref[torch.Tensor]] = []

    def run_out(logits: torch.Tensor) -> None:
        if len(logits) == 2:
            large = torch.zeros(10)
            held.append(weakref.ref(large))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate")

    generator = tiny.generator(most=2)
    requests = [Request(PROMPTS[n], 20) for n in (0, 1, 2)]
    for request in requests:
        generator.submit(request)
    with tiny.changing_logits(run_out):
        for request in requests[:2]:
            with pytest.raises(ServerFailed, match="out of memory"):
                generator.run(request)
    gc.collect()
    assert held[0]() is None
    assert generator.run(requests[2]).text == tiny.expected(PROMPTS[2], 20)
