"""What is kept of a text that is too long is on token boundaries and still a place in it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.models import weights
from colligate.models.llamacpp import LlamaCpp
from colligate.models.scripted import ScriptedModel
from colligate.models.truncation import Keep, truncate, truncated
from colligate.token_estimate import token_spans

KEEP: list[Keep] = ["head", "tail", "head+tail"]
ODD = st.text(alphabet="ab ß\u0301\n東🙂\u200d\U0001f469\udce9.", max_size=60)


@st.composite
def tokenised(draw: st.DrawFn) -> tuple[str, list[tuple[int, int]]]:
    """A text and spans as protocols allow: some blanks in none, some characters in several."""
    text = draw(ODD)
    spans: list[tuple[int, int]] = []
    at = 0
    while at < len(text):
        if text[at].isspace() and draw(st.booleans()):
            at += 1
            continue
        end = draw(st.integers(at + 1, min(len(text), at + 4)))
        pieces = draw(st.integers(1, 3)) if draw(st.booleans()) else 1
        spans += [(at, end)] * pieces
        # The next token may begin inside this one's last character.
        at = end - 1 if pieces > 1 and end - at > 1 and draw(st.booleans()) else end
    return text, draw(st.sampled_from([spans, [(0, 0), *spans]])) if spans else []


@settings(max_examples=400, deadline=None)
@given(tokenised(), st.integers(-1, 40), st.sampled_from(KEEP))
def test_what_is_kept(found: tuple[str, list[tuple[int, int]]], budget: int, keep: Keep) -> None:
    text, spans = found
    ranges = truncate(text, spans, budget, keep)
    if budget <= 0 or not text:
        assert ranges == []
        return
    if len(spans) <= budget:
        assert ranges == [(0, len(text))]
        return
    assert all(0 <= start < end <= len(text) for start, end in ranges)
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
    touched = [
        span for span in spans if any(span[0] < end and start < span[1] for start, end in ranges)
    ]
    assert len(touched) <= budget
    # No token is cut: each one lies in a kept range as a whole or outside them all.
    assert all(
        any(start <= span[0] and span[1] <= end for start, end in ranges) for span in touched
    )
    if keep == "head":
        assert all(start == 0 for start, _ in ranges)
    if keep == "tail":
        assert all(end == len(text) for _, end in ranges)


@settings(max_examples=200, deadline=None)
@given(ODD, st.integers(1, 40), st.sampled_from(KEEP))
def test_the_whole_budget_is_used_where_tokens_share_no_character(
    text: str, budget: int, keep: Keep
) -> None:
    spans = token_spans(text)
    ranges = truncate(text, spans, budget, keep)
    kept = [s for s in spans if any(a <= s[0] and s[1] <= b for a, b in ranges)]
    assert len(kept) == min(budget, len(spans))


WORDS = "one two three four five"


@pytest.mark.parametrize(
    ("keep", "budget", "kept"),
    [
        ("head", 2, ["one two"]),
        ("tail", 2, ["four five"]),
        ("head+tail", 3, ["one two", "five"]),
        ("head+tail", 2, ["one", "five"]),
        ("head+tail", 1, ["one"]),
        ("head", 5, [WORDS]),
        ("tail", 0, []),
    ],
)
def test_heads_and_tails(keep: Keep, budget: int, kept: list[str]) -> None:
    assert [WORDS[a:b] for a, b in truncate(WORDS, token_spans(WORDS), budget, keep)] == kept


def test_a_character_of_several_tokens_is_kept_whole_or_not_at_all() -> None:
    text, spans = "ab東cd", [(0, 2), (2, 3), (2, 3), (2, 3), (3, 5)]
    assert truncate(text, spans, 3, "head") == [(0, 2)]
    assert truncate(text, spans, 4, "head") == [(0, 3)]
    assert truncate(text, spans, 2, "tail") == [(3, 5)]
    assert truncate("東", [(0, 1)] * 3, 2, "head+tail") == []


@pytest.fixture(scope="module")
def llama() -> Iterator[LlamaCpp]:
    path = weights.pull("smollm2-135m")["model"]
    model = LlamaCpp(path, name="gguf:smollm2-135m", context_tokens=256, threads=1)
    yield model
    asyncio.run(model.aclose())


REAL = (
    "The tenant pays 900 euros a month — not later than the 3rd.\n\n\tNaïve 東京の橋, 🦦́ "
    "\U0001f469\u200d\U0001f467 and ไทย; 'quoted' text,  two blanks, internationalisation. "
) * 3


@pytest.mark.model
@pytest.mark.parametrize("keep", KEEP)
async def test_what_is_kept_counts_as_much_when_a_real_model_reads_it(
    llama: LlamaCpp, keep: Keep
) -> None:
    whole = await llama.count_tokens(REAL)
    for budget in [*range(1, whole, 7), whole, whole + 1]:
        kept = await truncated(llama, REAL, budget, keep)
        again = await llama.count_tokens(kept.text)
        # Less by the tokens that share a character with the first one cut off, and no more than
        # the letters that meet where head and tail are put together.
        assert min(budget, whole) - 6 <= again <= budget + (2 if keep == "head+tail" else 0)
        assert "\ufffd" not in kept.text
    assert kept.text == REAL


@settings(max_examples=100, deadline=None)
@given(ODD, st.integers(0, 30), st.sampled_from(KEEP), st.data())
async def test_what_is_kept_leads_back_to_where_it_stood(
    text: str, budget: int, keep: Keep, data: st.DataObject
) -> None:
    kept = await truncated(ScriptedModel(), text, budget, keep)
    assert kept.text == "".join(text[start:end] for start, end in kept.ranges)
    start = data.draw(st.integers(0, len(kept.text)))
    end = data.draw(st.integers(start, len(kept.text)))
    places = kept.source(start, end)
    assert "".join(text[a:b] for a, b in places) == kept.text[start:end]
    assert len(places) <= 2
