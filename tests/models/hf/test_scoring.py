"""Likelihoods computed together are those of full passes, one by one."""

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
from colligate.models.hf.runtime import Layers, PrefixCache
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
    assert max(len(ids_of(model, pair)[0]) for pair in PAIRS) > 100  # beyond all windows
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


def test_stopped_between_layers_and_usable_after(llama):
    stop = Event()
    layers = llama.runtime.model.get_decoder().layers
    handle = layers[0].register_forward_hook(lambda *_: stop.set())
    with pytest.raises(PassStopped):
        score(llama, stop=stop)
    handle.remove()
    assert_equal(score(llama, PAIRS[:1]), [naive(llama, *ids_of(llama, PAIRS[0]))])


# Prompts that begin alike find what was computed of each other

IDS = st.lists(st.integers(0, 2), min_size=1, max_size=8)
BYTES_PER_TOKEN = 2 * 4


def layers_of(ids: list[int]) -> Layers:
    """One layer whose keys and values are the ids themselves."""
    row = torch.tensor(ids, dtype=torch.float32).reshape(1, 1, -1, 1)
    return [(row, -row)]


@given(kept=st.lists(st.tuples(IDS, st.sampled_from(["", "a"]))), asked=IDS)
def test_the_longest_beginning_under_the_same_adapter_is_found(kept, asked):
    cache = PrefixCache(1 << 20)
    for ids, adapter in kept:
        cache.store(ids, layers_of(ids), adapter)
    layers, length = cache.find_longest(asked, "a")
    prefixes = [ids[:n] for ids, adapter in kept if adapter == "a" for n in range(1, len(ids) + 1)]
    assert length == sum(asked[:n] in prefixes for n in range(1, len(asked) + 1))
    for keys, values in layers:
        assert keys.flatten().tolist() == asked[:length]
        assert values.flatten().tolist() == [-i for i in asked[:length]]


@given(kept=st.lists(IDS), limit=st.integers(0, 100))
def test_it_never_holds_more_than_its_limit(kept, limit):
    cache = PrefixCache(limit)
    for ids in kept:
        cache.store(ids, layers_of(ids))
        assert (cache.find_longest(ids)[1] == len(ids)) == (len(ids) * BYTES_PER_TOKEN <= limit)
        assert cache.currsize <= limit
