"""One answer: tokens by logits, seed and grammar; text as soon as it is certain; ends; errors."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import llguidance
import llguidance.hf
import numpy as np
import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from colligate.errors import ContextTooSmall, RequestRefused, ServerFailed
from colligate.models.decoding import AnswerInProgress, GeneratedText, GenerationRequest
from colligate.models.grammar import Grammar, Grammars
from colligate.models.hf.loading import find_source, load_tokenizer

PROMPT = [17, 80, 31]


@pytest.fixture(scope="module")
def tokenizer(tiny_folder: Callable[..., Path]) -> Any:
    return load_tokenizer(find_source(str(tiny_folder("llama"))))


def start(tokenizer: Any, request: GenerationRequest) -> AnswerInProgress:
    decode = partial(tokenizer.backend_tokenizer.decode, skip_special_tokens=True)
    ends = frozenset({tokenizer.eos_token_id})
    return AnswerInProgress(request, decode=decode, ends=ends, name="tiny", context=512)


def random_logits(tokenizer: Any, written: Sequence[int]) -> NDArray[np.float32]:
    """Logits that depend on the tokens before, as those of a model do; no control token."""
    random = np.random.default_rng([len(written), *written[-3:]])
    logits = random.normal(size=len(tokenizer)).astype(np.float32)
    logits[list(tokenizer.all_special_ids)] = -1e9
    return logits


def answer(
    tokenizer: Any,
    ids: list[int] = PROMPT,
    max_tokens: int = 99,
    logits: Callable[[Any, Sequence[int]], NDArray[np.float32]] = random_logits,
    **options: Any,
) -> GeneratedText:
    progress = start(tokenizer, GenerationRequest(ids, max_tokens, **options))
    while progress.request.outcome is None:
        progress.write(logits(tokenizer, progress.written))
    assert isinstance(progress.request.outcome, GeneratedText)
    return progress.request.outcome


def test_draws_follow_the_probabilities(tokenizer):
    chosen = np.full(len(tokenizer), -np.inf, np.float32)
    tokens = [tokenizer.convert_tokens_to_ids(letter) for letter in "abc"]
    chosen[tokens] = np.log([0.25, 0.5, 0.25])
    made = answer(tokenizer, max_tokens=400, logits=lambda *_: chosen, temperature=0.5, seed=1)
    # At half the temperature odds are squared: 1 to 4 to 1.
    assert set(made.text) == set("abc")
    assert made.text.count("b") == pytest.approx(400 * 4 / 6, rel=0.15)
    assert made.text.count("a") == pytest.approx(400 / 6, rel=0.4)


SCHEMA = {"type": "array", "items": {"enum": ["yes", "no", "perhaps"]}, "minItems": 2}


@pytest.mark.parametrize("temperature", [0.0, 1.5])
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["free", "schema"])
@settings(max_examples=25)
@given(data=st.data())
def test_tokens_of_a_draft_are_checked_one_after_the_other(tokenizer, schema, temperature, data):
    make_tokens = partial(llguidance.hf.from_tokenizer, tokenizer)
    grammar = None if schema is None else Grammars(make_tokens).compile(schema)
    options = {"temperature": temperature, "seed": 4, "grammar": grammar}
    plain = start(tokenizer, GenerationRequest(PROMPT, 30, **options))
    while plain.request.outcome is None:
        plain.write(random_logits(tokenizer, plain.written))

    drafted = start(tokenizer, GenerationRequest(PROMPT, 30, **options))
    while drafted.request.outcome is None:
        right = plain.written[len(drafted.written) :][: data.draw(st.integers(0, 4))]
        draft = [*right, *data.draw(st.lists(st.integers(3, len(tokenizer) - 1), max_size=2))]
        before = list(drafted.written)
        rows = [random_logits(tokenizer, [*before, *draft[:n]]) for n in range(len(draft) + 1)]
        for row, token in zip(rows, [*draft, None], strict=True):
            chosen = drafted.choose(row)
            drafted.add(chosen)
            if drafted.request.outcome is not None or chosen != token:
                break
    assert drafted.written == plain.written
    assert drafted.request.outcome == plain.request.outcome


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"ids": [7] * 513}, ContextTooSmall, "513 tokens and the window 512"),
        ({"max_tokens": -1}, RequestRefused, "below 0"),
        ({"temperature": -0.5}, RequestRefused, "below 0"),
        ({"temperature": float("nan")}, RequestRefused, "nan"),
    ],
)
def test_a_request_that_cannot_be_answered_is_refused_at_once(tokenizer, options, error, why):
    request = GenerationRequest(**{"ids": PROMPT, "max_tokens": 5, **options})
    with pytest.raises(error, match=why):
        start(tokenizer, request)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(tokenizer, value, temperature):
    logits = random_logits(tokenizer, [])
    logits[7] = value
    with pytest.raises(ServerFailed, match="not finite"):
        answer(tokenizer, logits=lambda *_: logits, temperature=temperature)


TEXTS = st.text(st.sampled_from("abS TOP.é€😀\n\"'<"), min_size=1, max_size=16)


@settings(max_examples=40)
@given(text=TEXTS)
def test_any_text_streams_in_any_tokens(tokenizer, text):
    for seed in range(2):
        pieces: list[str] = []
        options = {"grammar": literal(tokenizer, text), "on_piece": pieces.append}
        made = answer(tokenizer, temperature=1.0, seed=seed, **options)
        assert made.text == "".join(pieces) == text
        assert made.finish_reason == "stop"
        assert all(pieces)


@pytest.mark.parametrize("text", ["né", "n€", "n😀"])
def test_a_character_cut_by_the_limit_is_left_out(tokenizer, text):
    tokens = tokenizer.encode(text)
    assert len(tokens) == 1 + len(text[1:].encode())  # bytes, one by one
    made = answer(tokenizer, max_tokens=len(tokens) - 1, grammar=literal(tokenizer, text))
    assert (made.text, made.finish_reason) == ("n", "length")


def test_blanks_of_sentencepiece_are_kept():
    tokenizer = sentencepiece()
    for text in (" yes it is", "yes\u20ac it", "a  b \U0001f600 c"):
        pieces: list[str] = []
        before = tokenizer.backend_tokenizer.encode("The answer is").ids
        options = {"grammar": literal(tokenizer, text), "on_piece": pieces.append}
        made = answer(tokenizer, before, temperature=1.0, seed=1, **options)
        assert made.text == "".join(pieces) == text
        assert len(pieces) > 2


def literal(tokenizer: Any, text: str) -> Grammar:
    """A grammar that allows only this text, in any tokens."""
    tokens = llguidance.hf.from_tokenizer(tokenizer)
    escaped = "".join(rf"\u{ord(c):04x}" if c < " " or c in '"\\\x7f' else c for c in text)
    matcher = llguidance.LLMatcher(tokens, f'start: "{escaped}"', log_level=0)
    assert not matcher.is_error(), matcher.get_error()
    return Grammar(matcher)


def sentencepiece() -> Any:
    """A tokenizer such as Llama 2's: blanks within tokens, bytes for what it has no token for."""
    letters = dict.fromkeys(["▁", *"Theanswrisytbc", "▁y", "is", "▁is", "▁it"])
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters]
    merges = [("▁", "y"), ("i", "s"), ("▁", "is")]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    return transformers.LlamaTokenizer(vocab=vocabulary, merges=merges)
