"""Likelihoods computed together are those of full passes, one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from colligate.models.decoding import PassStopped
from colligate.models.hf import score as scoring
from colligate.models.hf.score import LikelihoodScorer
from support.tiny_models import ARCHITECTURES, TinyModel

INSTRUCTION = "Numbers: 0 1 2 3 4 5 6 7 8 9. " * 4
OTTERS = "Otters eat fish, and bridges cross rivers. "
TREATY = "The treaty of 1932 was signed by two of the otters, and by no bridge. "
QUESTION = "Who signed the treaty of 1932?"
PAIRS = [
    (INSTRUCTION + OTTERS, QUESTION),
    (INSTRUCTION + TREATY * 3, QUESTION),
    (INSTRUCTION + TREATY, QUESTION),  # a beginning of the one before
    (TREATY, QUESTION),
    (TREATY, ""),
    (TREATY, "W"),
    (TREATY + QUESTION, " Otters"),
    ("", QUESTION),
    ("", "W"),
    (INSTRUCTION + OTTERS, QUESTION),  # once more
    (INSTRUCTION + OTTERS, "yes"),
    (INSTRUCTION + OTTERS, "no <|im_end|>"),
]


def ids_of(model: TinyModel, pair: tuple[str, str]) -> tuple[list[int], list[int]]:
    encode = model.prompts.encode_literal
    return encode(pair[0], beginning=True), encode(pair[1])


def naive(model: TinyModel, prefix: Sequence[int], continuation: Sequence[int]) -> list[float]:
    """By a full pass over the one sequence."""
    ids = [*prefix, *continuation]
    with torch.inference_mode():
        logits = model.runtime.model(torch.tensor([ids])).logits[0]
    odds = logits.float().log_softmax(-1)
    model.read.pop()  # not the scorer's
    return [odds[i - 1, ids[i]].item() for i in range(len(prefix), len(ids))]


def score(model: TinyModel, pairs: Any = PAIRS, **options: Any) -> list[list[float]]:
    ids = [ids_of(model, pair) for pair in pairs]
    return LikelihoodScorer(model.runtime).score(ids, **options)


def score_ids(model: TinyModel, prefix: Any, continuations: Any) -> list[list[float]]:
    return LikelihoodScorer(model.runtime).score([(prefix, ids) for ids in continuations])


@contextmanager
def limits(tokens: int, logit_bytes: int) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scoring, "_PASS_TOKENS", tokens)
        patch.setattr(scoring, "_LOGIT_BYTES", logit_bytes)
        patch.setattr(scoring, "_SLICE_BYTES", logit_bytes // 2)
        yield


def assert_equal(values: list[list[float]], expected: list[list[float]]) -> None:
    assert [len(row) for row in values] == [len(row) for row in expected]
    for row, other in zip(values, expected, strict=True):
        assert row == pytest.approx(other, abs=1e-4)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_same_as_full_passes(architecture, tiny_model):
    model = tiny_model(architecture)
    expected = [naive(model, *ids_of(model, pair)) for pair in PAIRS]
    assert (
        max(len(prefix) for prefix, _ in (ids_of(model, pair) for pair in PAIRS)) > 100
    )  # beyond all windows
    assert_equal(score(model), expected)
    assert_equal(score(model), expected)  # with what is remembered now


TEXTS = st.lists(st.sampled_from([INSTRUCTION, OTTERS, TREATY, QUESTION, "W", " "]), max_size=4)


@pytest.mark.parametrize("architecture", ["llama", "mistral", "gemma2"])
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(
    pairs=st.lists(st.tuples(TEXTS.map("".join), st.sampled_from(["", "W", OTTERS])), max_size=7),
    tokens=st.sampled_from([40, 100, 2048]),
    rows=st.sampled_from([1, 5, 1000]),
)
def test_random_pairs_in_passes_of_any_size(architecture, tiny_model, pairs, tokens, rows):
    model = tiny_model(architecture)
    with limits(tokens, rows * 4 * model.runtime.model.config.vocab_size):
        values = score(model, pairs)
    assert_equal(values, [naive(model, *ids_of(model, pair)) for pair in pairs])


def test_what_is_shared_is_computed_once(llama):
    pairs = [(INSTRUCTION * 2 + text, QUESTION) for text in (OTTERS, TREATY, QUESTION)]
    shared = len(llama.prompts.encode_literal(INSTRUCTION * 2))
    longest = max(sum(map(len, ids_of(llama, pair))) for pair in pairs)
    score(llama, pairs)
    assert sum(llama.read) <= shared + 3 * (longest - shared)


@pytest.mark.parametrize("tokens", [2048, 60], ids=["one pass", "several passes"])
def test_a_long_prefix_is_computed_once_and_remembered(llama, tokens):
    prefix = llama.prompts.encode_literal(TREATY * 6)
    continuations = [llama.prompts.encode_literal(word + OTTERS) for word in "ABCDEFGH"]
    expected = [naive(llama, prefix, each) for each in continuations]
    added = sum(map(len, continuations))
    for most in (len(prefix) + added - 1, added):
        llama.read.clear()
        with limits(tokens, 1 << 28):
            assert_equal(score_ids(llama, prefix, continuations), expected)
        assert sum(llama.read) <= most


@pytest.mark.parametrize(
    "rope",
    [
        {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
        {
            "rope_type": "longrope",
            "rope_theta": 10000.0,
            "short_factor": [1.0] * 4,
            "long_factor": [3.0] * 4,
            "original_max_position_embeddings": 100,
        },
    ],
)
def test_rotations_by_length_are_those_of_each_sequence(rope, tiny_folder):
    """A long sequence beside a short one must not change how the short one is read."""
    model = TinyModel(tiny_folder("llama", rope_parameters=rope, max_position_embeddings=100))
    short, long = (OTTERS, QUESTION), (TREATY * 10, QUESTION)
    expected = naive(model, *ids_of(model, short))
    assert score(model, [long, short])[1] == pytest.approx(expected, abs=1e-4)


def test_nothing_asked(llama):
    assert score(llama, []) == []
    assert score(llama, [(OTTERS, ""), ("", "")]) == [[], []]
    assert score_ids(llama, [3], []) == []
    assert not llama.read
    with pytest.raises(ValueError, match="token before"):
        score_ids(llama, [], [[3]])


def test_as_long_as_the_window(llama):
    prefix, continuation = [5] * 500, [6] * 12
    expected = naive(llama, prefix, continuation)
    assert_equal(score_ids(llama, prefix, [continuation]), [expected])


def test_stopped_between_layers_and_usable_after(llama):
    stop = Event()
    layers = llama.runtime.model.get_decoder().layers
    handle = layers[0].register_forward_hook(lambda *_: stop.set())
    with pytest.raises(PassStopped):
        score(llama, stop=stop)
    handle.remove()
    assert_equal(score(llama, PAIRS[:1]), [naive(llama, *ids_of(llama, PAIRS[0]))])


@pytest.mark.parametrize("length", [100, 700])
@pytest.mark.parametrize("architecture", ["llama", "mistral"])
def test_long_texts_beside_each_other(architecture, length, tiny_folder):
    """Long documents beside each other, with and without a shared beginning."""
    model = TinyModel(tiny_folder(architecture, max_position_embeddings=2048))
    model.runtime.context = 2048
    generator = torch.Generator().manual_seed(length)
    one, other, shared = torch.randint(3, 200, (3, length), generator=generator).tolist()
    with limits(10_000, 1 << 30):
        for beginning in ([9], shared[:30], shared[:200]):
            texts = [one, other, [*one[:50], *other[:50]]]
            expected = [naive(model, beginning, each) for each in texts]
            assert_equal(score_ids(model, beginning, texts), expected)
