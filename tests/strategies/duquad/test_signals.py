"""The signals of DuQUAD: their equations, and how they are asked of a run's models."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.documents import Span
from colligate.errors import ContextTooSmall
from colligate.library.in_memory import InMemorySources
from colligate.library.ranking import standardise
from colligate.strategies.duquad import Signal, contrast, fuse_signals
from colligate.strategies.duquad.signals import add_up
from support.documents import make

WEIGHTS = {Signal.SIMILARITY: 0.5, Signal.LIKELIHOOD: 1.0, Signal.ATTENTION: 0.5}

numbers = st.floats(-100, 100).map(lambda x: round(x, 3))


def test_contrast_is_to_both_neighbours_inside_and_to_one_at_the_ends():
    # z of (1, 2, 6) has mean 3 and deviation sqrt(14/3).
    sigma = math.sqrt(14 / 3)
    expected = [-1 / sigma, (-1 - (-2 + 3) / 2) / sigma, 4 / sigma]
    assert contrast([1, 2, 6]) == pytest.approx(expected)


def test_a_passage_alone_and_equal_attention_have_no_contrast():
    assert contrast([]) == []
    assert contrast([0.3]) == [0.0]
    assert contrast([0.1, 0.1, 0.1]) == [0.0, 0.0, 0.0]


@given(st.lists(numbers, min_size=2, max_size=30), st.floats(0.5, 20), numbers)
def test_contrast_does_not_depend_on_scale_or_level(attention, scale, level):
    other = [scale * a + level for a in attention]
    assert contrast(other) == pytest.approx(contrast(attention), abs=1e-4)


@given(st.lists(numbers, min_size=1, max_size=30))
def test_standard_scores_have_mean_0_and_deviation_1_or_are_all_0(values):
    z = standardise(values)
    assert z.mean() == pytest.approx(0, abs=1e-9)
    assert z.std() == pytest.approx(1) or not z.any()


def test_the_structural_fusion_score_by_hand():
    signals = dict(zip(WEIGHTS, ([0.9, 0.1], [-1.0, -2.0], [0.5, -0.5]), strict=True))
    scores = add_up(signals, WEIGHTS)
    share = lambda d: 1 / (1 + math.exp(-d))  # noqa: E731 (of the larger of two that differ by d)
    first = 0.5 * share(0.8) + 1.0 * share(1.0) + 0.5 * share(1.0)
    assert scores == pytest.approx([first, 2.0 - first])


QUESTION = "How long is the notice?"


def likelihood(prefix: str, continuation: str) -> list[float]:
    assert continuation == QUESTION
    return [-1.0, -2.0] if "notice" in prefix else [-3.0, -5.0]


def attention(prompt, spans) -> list[float]:
    asked = (prompt if isinstance(prompt, str) else prompt[-1].content).endswith(QUESTION)
    return [0.3 - 0.1 * i if asked else 0.2 for i in range(len(spans))]


@pytest.fixture
def passages(documents):
    return [document.passage(Span(document.id, 0, len(document))) for document in documents]


@pytest.fixture
def scored(documents, passages, make_run, minilm):
    async def ask(*, embedder=minilm, given=passages, weights=WEIGHTS, **options):
        run, model = make_run(InMemorySources(documents), embedder=embedder, **options)
        return await fuse_signals(QUESTION, given, run, weights), run, model

    return ask


async def test_all_three_count_with_the_papers_weights(scored):
    fused, run, _ = await scored(likelihood=likelihood, attention=attention)
    assert fused.signals["likelihood"] == (-1.5, -4.0)
    assert fused.signals["attention"] == pytest.approx((0.3, 0.2))
    assert fused.signals["contrast"] == pytest.approx(contrast([0.3, 0.2]))
    similar, other = fused.signals["similarity"]
    assert 1 > similar > other > -1
    assert fused.weights == WEIGHTS
    assert sum(fused.scores) == pytest.approx(2.0)  # of three shares, weighted
    assert fused.scores[0] > fused.scores[1]
    assert run.meter.report().scoring_passes == 3
    assert run.warnings == ()


async def test_without_attention_the_others_weigh_more(scored):
    fused, _, _ = await scored(likelihood=likelihood)
    assert fused.missing == (Signal.ATTENTION,)
    assert fused.weights == pytest.approx({Signal.SIMILARITY: 2 / 3, Signal.LIKELIHOOD: 4 / 3})
    assert sum(fused.scores) == pytest.approx(2.0)


async def test_a_scorer_with_too_small_a_window_is_done_without(scored):
    def too_small(prompt, spans):
        raise ContextTooSmall("the prompt does not fit scripted")

    fused, run, _ = await scored(likelihood=likelihood, attention=too_small)
    assert fused.missing == (Signal.ATTENTION,)
    assert run.warnings == ("attention is not used: the prompt does not fit scripted",)


LONG = "The mill is old and grey. " * 60


async def test_a_text_longer_than_the_scorers_window_takes_no_signal_from_others(scored, passages):
    read = []

    def likely(prefix, continuation):
        read.append(prefix)
        return likelihood(prefix, continuation)

    lease, rules = passages
    book = make(f"The book begins so. {LONG}", "Book", "book")
    given = [lease, book.passage(book.span(0, len(book))), rules]
    fused, run, _ = await scored(
        given=given, likelihood=likely, attention=attention, context_tokens=250
    )
    assert fused.missing == ()
    assert fused.signals["likelihood"] == (-1.5, -4.0, -4.0)
    assert "The book begins so." in read[1]
    assert read[1].endswith("Question: ")
    assert len(read[1]) < len(LONG)
    lease, book, rules = fused.signals["attention"]
    assert book == min(lease, rules) < max(lease, rules)
    warning = "no attention is taken to 1 of 3 texts: they do not fit the window of scripted"
    assert run.warnings == (warning,)


async def test_the_least_similar_are_left_out_of_attention_where_not_all_fit(scored, passages):
    seen = []

    def watching(prompt, spans):
        seen.append([prompt[a:b].split("\n")[0] for a, b in spans])
        return [0.1] * len(spans)

    books = [make(f"{title}. {LONG[:600]}", title, title) for title in ("One", "Two")]
    given = [*(each.passage(each.span(0, len(each))) for each in books), passages[0]]
    for order in (given, given[::-1]):
        await scored(given=order, attention=watching, context_tokens=260)
    assert [sorted(each)[0] for each in seen] == ["Lease", "Lease"]
    assert [len(each) for each in seen] == [2, 2]
