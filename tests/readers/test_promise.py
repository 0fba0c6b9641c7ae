"""The promise: a risk says how probable an answer must be."""

import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.answer import NOT_FOUND, Answer, Citation
from colligate.core.run import RISKS
from colligate.documents import Span
from colligate.library.in_memory import InMemorySources
from colligate.readers.promise import FOUND, Promise, keep_promise, load_promise

CURVES = st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=60).map(
    lambda curve: tuple(sorted(curve, reverse=True))
)


@given(CURVES, st.floats(0.01, 0.99))
def test_of_the_fitted_answers_from_the_limit_on_a_share_is_wrong_that_the_risk_allows(curve, risk):
    limit = Promise((0.0,), curve).limit(risk)
    kept = [right for probability, right in curve if probability >= limit]
    assert not kept or kept.count(False) / len(kept) <= risk


@given(CURVES, st.floats(0.01, 0.9))
def test_a_greater_risk_never_asks_for_more(curve, risk):
    promise = Promise((0.0,), curve)
    assert promise.limit(risk + 0.05) <= promise.limit(risk)


def test_of_new_answers_of_the_same_kind_about_that_share_is_wrong():
    drawn = random.Random(7)

    def draw(count):
        made = [(p, drawn.random() < p) for p in (drawn.random() for _ in range(count))]
        return tuple(sorted(made, reverse=True))

    limits = [Promise((0.0,), draw(400)).limit(0.2) for _ in range(20)]
    kept = [right for limit in limits for probability, right in draw(1000) if probability >= limit]
    assert 0.15 < kept.count(False) / len(kept) < 0.23  # the limit was chosen by as few


@pytest.mark.parametrize("way", ["read", "found"])
def test_what_is_carried_gives_fewer_answers_for_a_smaller_risk(way):
    promise = load_promise(way)
    limits = [promise.limit(risk) for risk in RISKS.values()]
    assert limits == sorted(limits, reverse=True)
    assert limits[-1] < 1
    assert len(promise.curve) >= 100


@pytest.fixture
async def run(make_run):
    async with InMemorySources(()) as sources:
        yield make_run(sources, [])[0]


ANSWER = Answer("Who?", "auto", "Ada [1]", True, short="Ada")


async def test_an_answer_that_is_not_sure_enough_is_refused_and_named(run):
    run.risk = 0.1
    kept = keep_promise(dataclasses.replace(ANSWER, probability=0.2), run)
    assert (kept.found, kept.text, kept.citations) == (False, NOT_FOUND, ())
    assert any("“Ada” is left out" in each and "0.20" in each for each in run.warnings)


async def test_a_sure_answer_and_one_without_a_risk_are_kept(run):
    unsure = dataclasses.replace(ANSWER, probability=0.2)
    assert keep_promise(unsure, run) is unsure
    run.risk = 0.4
    sure = dataclasses.replace(ANSWER, probability=0.999)
    assert keep_promise(sure, run) is sure


async def test_what_was_found_without_a_reader_has_a_limit_of_its_own(run):
    cited = Citation(Span("a", 0, 3), "Ada", "A", (), None, ((0, 3),), how=FOUND)
    limits = {way: load_promise(way).limit(0.2) for way in ("read", "found")}
    assert limits["read"] < limits["found"]
    between = dataclasses.replace(ANSWER, probability=sum(limits.values()) / 2)
    run.risk = 0.2
    assert keep_promise(between, run).found
    assert not keep_promise(dataclasses.replace(between, citations=(cited,)), run).found


async def test_an_answer_of_unknown_probability_is_kept_with_a_warning(run):
    run.risk = 0.1
    assert keep_promise(ANSWER, run) is ANSWER
    assert any("no probability" in each for each in run.warnings)
