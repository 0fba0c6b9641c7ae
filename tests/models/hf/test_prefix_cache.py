"""Prompts that begin alike find what was computed of each other."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from colligate.models.hf.runtime import Layers, PrefixCache

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
        assert sum(cache.find_longest(i)[1] == len(i) for i in [ids]) == (
            len(ids) * BYTES_PER_TOKEN <= limit
        )
        assert cache.size <= limit


def test_what_was_not_used_for_longest_is_forgotten_first():
    cache = PrefixCache(2 * 3 * BYTES_PER_TOKEN)
    for ids in ([1, 1, 1], [2, 2, 2]):
        cache.store(ids, layers_of(ids))
    assert cache.find_longest([1, 1, 1])[1] == 3  # used again
    cache.store([3, 3, 3], layers_of([3, 3, 3]))
    assert [cache.find_longest([i] * 3)[1] for i in (1, 2, 3)] == [3, 0, 3]


def test_a_prompt_that_goes_on_replaces_its_beginning():
    cache = PrefixCache(1 << 20)
    cache.store([1, 2], layers_of([1, 2]))
    cache.store([1, 2, 3], layers_of([1, 2, 3]))
    assert cache.size == 3 * BYTES_PER_TOKEN
    cache.clear()
    assert (cache.size, cache.find_longest([1])[1]) == (0, 0)
