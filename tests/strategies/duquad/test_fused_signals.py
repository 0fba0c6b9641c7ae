"""The signals of DuQUAD as they are asked of a run's models."""

from __future__ import annotations

import json

import pytest

from colligate.core import Run
from colligate.core.events import to_plain
from colligate.documents import Span
from colligate.errors import ContextTooSmall, MissingCapability, ServerFailed
from colligate.library import InMemorySources
from colligate.models import Message, Role
from colligate.models.metering import Meter
from colligate.strategies.duquad import Fusion, Signal, contrast, fuse_signals
from colligate.strategies.duquad.signals import WEIGHTS, Weighted, calibrate
from colligate.testing import ScriptedModel
from support.documents import make

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
    async def ask(*, fusion=Fusion.SFS, embedder=minilm, given=passages, **options):
        calls = {k: options.pop(k) for k in ("weights", "without", "agent_prompt") if k in options}
        run, model = make_run(InMemorySources(documents), embedder=embedder, **options)
        return await fuse_signals(QUESTION, given, run, fusion=fusion, **calls), run, model

    return ask


def weighted(run) -> Weighted:
    [event] = [event for _, event in run.trace.events if isinstance(event, Weighted)]
    return event


async def test_all_three_count_with_the_papers_weights(scored):
    fused, run, _ = await scored(likelihood=likelihood, attention=attention)
    assert fused.signals["likelihood"] == (-1.5, -4.0)
    assert fused.signals["attention"] == pytest.approx((0.3, 0.2))
    assert fused.signals["contrast"] == pytest.approx(contrast([0.3, 0.2]))
    similar, other = fused.signals["similarity"]
    assert 1 > similar > other > -1
    assert fused.weights == WEIGHTS[Fusion.SFS]
    assert sum(fused.scores) == pytest.approx(2.0)  # of three shares, weighted
    assert fused.scores[0] > fused.scores[1]
    assert run.meter.report().scoring_passes == 3
    assert run.warnings == ()


async def test_the_trace_shows_every_number(scored):
    fused, run, _ = await scored(likelihood=likelihood, attention=attention)
    event = json.loads(json.dumps(weighted(run).to_json()))
    assert event["signals"] == to_plain(fused.signals)
    assert event["weights"] == {"similarity": 0.5, "likelihood": 1.0, "attention": 0.5}
    assert event["fusion"] == "sfs"
    assert [span["document_id"] for span in event["spans"]] == ["lease", "rules"]


async def test_without_attention_the_others_weigh_more(scored):
    fused, _, _ = await scored(likelihood=likelihood)
    assert fused.missing == (Signal.ATTENTION,)
    assert fused.weights == pytest.approx({Signal.SIMILARITY: 2 / 3, Signal.LIKELIHOOD: 4 / 3})
    assert sum(fused.scores) == pytest.approx(2.0)


async def test_a_server_that_turns_out_to_give_no_likelihood_is_said(scored):
    def refuses(prefix, continuation):
        raise MissingCapability("it gives none after all")

    fused, run, _ = await scored(likelihood=refuses, attention=attention)
    assert fused.missing == (Signal.LIKELIHOOD,)
    assert run.warnings == ("likelihood is not used: it gives none after all",)


async def test_a_scorer_with_too_small_a_window_is_done_without(scored):
    def too_small(prompt, spans):
        raise ContextTooSmall("the prompt does not fit scripted")

    fused, run, _ = await scored(likelihood=likelihood, attention=too_small)
    assert fused.missing == (Signal.ATTENTION,)
    assert run.warnings == ("attention is not used: the prompt does not fit scripted",)


async def test_with_nothing_to_go_by_all_score_alike_in_their_order(scored):
    fused, _, _ = await scored(embedder=None)
    assert fused.scores == (0.0, 0.0)
    assert set(fused.missing) == set(WEIGHTS[Fusion.CALIBRATED])


LONG = "The mill is old and grey. " * 60


@pytest.mark.parametrize("fusion", list(Fusion)[1:])
async def test_a_text_longer_than_the_scorers_window_takes_no_signal_from_the_others(
    scored, passages, fusion
):
    read = []

    def likely(prefix, continuation):
        read.append(prefix)
        return likelihood(prefix, continuation)

    lease, rules = passages
    book = make(f"The book begins so. {LONG}", "Book", "book")
    given = [lease, book.passage(book.span(0, len(book))), rules]
    fused, run, _ = await scored(
        fusion=fusion, given=given, likelihood=likely, attention=attention, context_tokens=250
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


async def test_what_is_left_out_is_not_asked_for(scored):
    fused, run, _ = await scored(
        likelihood=likelihood, attention=attention, without=[Signal.LIKELIHOOD, Signal.SIMILARITY]
    )
    assert fused.weights == {Signal.ATTENTION: 0.5}
    assert run.meter.report().scoring_passes == 1
    weights = {Signal.SIMILARITY: 1.0, Signal.LIKELIHOOD: 0.0}
    fused, run, _ = await scored(likelihood=likelihood, attention=attention, weights=weights)
    assert run.meter.report().scoring_passes == 0
    assert fused.missing == ()


async def test_no_passages_ask_nothing(scored):
    fused, run, _ = await scored(likelihood=likelihood, attention=attention, given=[])
    assert fused.scores == ()
    assert run.meter.calls == []


def by_title(prompt, spans):
    """Attention by what a passage is, and more for the one that stands last."""
    titles = [prompt[start:end].split("\n")[0] for start, end in spans]
    own = {"Lease": 0.3, "House rules": 0.1}
    return [own[title] + 0.1 * (place == len(spans) - 1) for place, title in enumerate(titles)]


async def test_calibrated_scores_do_not_depend_on_the_order_given(scored, passages):
    scores = []
    for given in (passages, passages[::-1]):
        fused, run, _ = await scored(
            fusion="calibrated", likelihood=likelihood, attention=by_title, given=given
        )
        scores.append(dict(zip((p.title for p in given), fused.scores, strict=True)))
        assert "contrast" not in fused.signals
        assert fused.weights == WEIGHTS[Fusion.CALIBRATED]
        assert run.meter.report().scoring_passes == 4  # two likelihoods, two readings
    assert scores[0] == pytest.approx(scores[1])
    assert scores[0]["Lease"] > scores[0]["House rules"]


async def test_calibrated_attention_is_of_one_order_and_its_reverse(scored):
    fused, _, _ = await scored(fusion="calibrated", attention=by_title)
    # The lease is the more similar one: it stands last in the first order, first in the other.
    assert fused.signals["attention"] == pytest.approx((0.4, 0.1))
    assert fused.signals["attention in reverse"] == pytest.approx((0.3, 0.2))
    assert fused.signals["calibrated"] == pytest.approx(calibrate([0.4, 0.1], [0.3, 0.2]))


async def test_the_readers_prompt_is_used_only_where_it_scores_itself(documents, passages, minilm):
    seen = []

    def watching(prompt, spans):
        seen.append((prompt, spans))
        return [0.1] * len(spans)

    content = f"first second {QUESTION}"
    shared = ([Message("user", content)], [(0, 5), (6, 12)])
    scorer = ScriptedModel(attention=watching)
    for role, expected in ((Role.READER, shared[0]), (Role.SCORER, None)):
        run = Run(
            InMemorySources(documents),
            {Role.READER: ScriptedModel(), role: scorer},
            Meter(),
            embedder=minilm,
        )
        await fuse_signals(QUESTION, passages, run, fusion=Fusion.SFS, agent_prompt=shared)
        prompt, spans = seen.pop()
        if expected is None:
            assert isinstance(prompt, str)
            assert [prompt[a:b] for a, b in spans] == [
                f"{p.title}\n{p.text.strip()}" for p in passages
            ]
        else:
            assert (prompt, spans) == (expected, shared[1])


class Scoring:
    """A reranker with a score for each title; without scores it fails."""

    name = "scoring"

    def __init__(self, scores):
        self.scores = scores

    async def score(self, query, texts):
        if self.scores is None:
            raise ServerFailed("the reranker fails", "503", "try later")
        return [next(s for title, s in self.scores.items() if title in text) for text in texts]

    async def aclose(self):
        pass


async def test_reranked_adds_both_scores_on_one_scale_without_the_scorer(scored):
    reranker = Scoring({"Lease": -9000.0, "House rules": 9000.0})
    fused, run, _ = await scored(
        fusion="reranked", reranker=reranker, likelihood=likelihood, attention=attention
    )
    assert fused.signals.keys() == {"similarity", "reranker"}
    assert fused.signals["reranker"] == (-9000, 9000)
    assert fused.scores == pytest.approx((0, 0))  # the cosine says the opposite, and counts alike
    assert run.meter.report().scoring_passes == 2  # of the reranker


async def test_reranked_puts_first_what_the_reranker_does_if_it_weighs_more(scored):
    reranker = Scoring({"Lease": 0.1, "House rules": 0.2})
    weights = {Signal.SIMILARITY: 1.0, Signal.RERANKER: 1.5}
    fused, *_ = await scored(fusion="reranked", reranker=reranker, weights=weights)
    assert fused.scores == pytest.approx((-0.5, 0.5))


@pytest.mark.parametrize(
    ("reranker", "warnings"),
    [(None, ()), (Scoring(None), ("reranker is not used: the reranker fails: 503; try later",))],
)
async def test_without_the_reranker_similarity_has_all_the_weight_and_it_is_said(
    scored, reranker, warnings
):
    fused, run, _ = await scored(fusion="reranked", reranker=reranker)
    assert fused.missing == (Signal.RERANKER,)
    assert fused.weights == {Signal.SIMILARITY: 2.0}
    assert fused.scores == pytest.approx((2, -2))
    assert run.warnings[:-1] == warnings
    assert "ranked by similarity alone" in run.warnings[-1]


async def test_a_reranker_of_another_language_is_left_out(scored):
    reranker = Scoring({"Lease": 0.1, "House rules": 0.2})
    reranker.language = "de"  # the documents are in English
    fused, run, _ = await scored(fusion="reranked", reranker=reranker)
    assert fused.missing == (Signal.RERANKER,)
    assert run.meter.report().scoring_passes == 0


async def test_without_an_embedder_the_reranker_has_all_the_weight(scored):
    reranker = Scoring({"Lease": 1.0, "House rules": 2.0})
    fused, *_ = await scored(fusion="reranked", reranker=reranker, embedder=None)
    assert fused.missing == (Signal.SIMILARITY,)
    assert fused.scores == pytest.approx((-2, 2))


async def test_the_reranker_is_a_fourth_signal_of_calibrated_if_it_has_a_weight(scored):
    reranker = Scoring({"Lease": 1.0, "House rules": 2.0})
    given = {"fusion": "calibrated", "likelihood": likelihood, "attention": by_title}
    three, *_ = await scored(**given, reranker=reranker)
    assert "reranker" not in three.signals
    weights = {**WEIGHTS[Fusion.CALIBRATED], Signal.RERANKER: 0.5}
    four, *_ = await scored(**given, reranker=reranker, weights=weights)
    assert four.weights == weights
    first, second = three.scores
    assert four.scores == pytest.approx((first - 0.5, second + 0.5))
