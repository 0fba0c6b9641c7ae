"""The signals of DuQUAD as they are asked of a run's models."""

from __future__ import annotations

import pytest

from colligate.documents import Span
from colligate.errors import ContextTooSmall
from colligate.library.in_memory import InMemorySources
from colligate.strategies.duquad import Signal, contrast, fuse_signals
from support.documents import make

QUESTION = "How long is the notice?"
WEIGHTS = {Signal.SIMILARITY: 0.5, Signal.LIKELIHOOD: 1.0, Signal.ATTENTION: 0.5}


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


async def test_a_text_longer_than_the_scorers_window_takes_no_signal_from_the_others(
    scored, passages
):
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
