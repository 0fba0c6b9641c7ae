import pytest

from colligate.core.token_scores import score_running_tokens, score_tokens
from colligate.documents.tokens import token_spans
from colligate.errors import MissingCapability
from colligate.library.in_memory import InMemorySources

TEXT = "One fish swims. Two birds fly away. Red deer run. Blue whales dive deep."
CUTS = [(0, 15), (16, 35), (36, 49), (50, 72)]


def by_place(prefix, text):
    """-1 for the first token of a continuation, -2 for the second..."""
    return [-float(place) for place, _ in enumerate(token_spans(text), 1)]


async def test_each_token_has_its_place_and_its_number(make_run):
    async with InMemorySources([]) as sources:
        run, _ = make_run(sources, likelihood=by_place)
        (tokens,) = await score_tokens(run, [("before", "two words")])
    assert [(t.start, t.end, t.logprob) for t in tokens] == [(0, 3, -1), (4, 9, -2)]


async def test_a_model_whose_tokens_have_no_places_is_refused(make_run):
    async with InMemorySources([]) as sources:
        run, _ = make_run(sources, likelihood=lambda prefix, text: [-1.0])
        with pytest.raises(MissingCapability, match="the places of its tokens"):
            await score_tokens(run, [("", "two words")])


async def test_a_text_that_fits_is_scored_in_one_pass_as_it_runs_on(make_run):
    seen = []

    def told(prefix, text):
        seen.append((prefix, text))
        return by_place(prefix, text)

    async with InMemorySources([]) as sources:
        run, _ = make_run(sources, likelihood=told)
        rows = await score_running_tokens(run, TEXT, CUTS)
    assert seen == [("", TEXT)]
    assert [TEXT[row[0].start : row[-1].end] for row in rows] == [TEXT[a:b] for a, b in CUTS]
    values = [token.logprob for row in rows for token in row]
    assert values == by_place("", TEXT)


async def test_a_long_text_is_scored_in_parts_each_after_what_comes_before(make_run):
    seen = []

    def told(prefix, text):
        seen.append((prefix, text))
        return by_place(prefix, text)

    async with InMemorySources([]) as sources:
        run, _ = make_run(sources, likelihood=told, context_tokens=24)  # 8 before, 8 scored
        rows = await score_running_tokens(run, TEXT, CUTS)
    assert "".join(text for _, text in seen).replace(" ", "") == TEXT.replace(" ", "")
    assert all(len(token_spans(text)) <= 8 for pair in seen for text in pair)
    assert all(TEXT.index(text) == TEXT.index(before) + len(before) for before, text in seen[1:])
    assert all(before for before, _ in seen[1:])
    assert [TEXT[row[0].start : row[-1].end] for row in rows] == [TEXT[a:b] for a, b in CUTS]


async def test_a_stretch_that_nearly_fills_the_window_is_scored_with_less_before_it(make_run):
    seen = []

    def told(prefix, text):
        seen.append((prefix, text))
        return by_place(prefix, text)

    long = "They swim " * 8
    text = f"One two. Three four. {long}"
    cuts = [(0, 8), (9, 20), (21, len(text) - 1)]
    async with InMemorySources([]) as sources:
        run, _ = make_run(sources, likelihood=told, context_tokens=28)  # 10 before, 10 scored
        rows = await score_running_tokens(run, text, cuts)
    assert [pair for pair in seen if pair[1].strip() == long.strip()] == [
        ("Three four. ", long[:-1])
    ]
    assert len(rows[-1]) == 16


async def test_nothing_is_asked_of_an_empty_text(make_run):
    async with InMemorySources([]) as sources:
        run, _ = make_run(sources, likelihood=by_place)
        assert await score_running_tokens(run, "", []) == []
        assert run.meter.report().scoring_passes == 0
