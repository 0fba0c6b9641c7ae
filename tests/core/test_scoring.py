"""What a run's scoring calls check, cost, show and warn of."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from colligate.core.events import Asking, Measured
from colligate.core.run import Run
from colligate.errors import BudgetExceeded, ContextTooSmall, MissingCapability
from colligate.models import LabelOdds, Message, Role
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.metering import Meter
from colligate.testing import ScriptedModel
from support.runs import events

ASK = [Message("user", "Is it so?")]
PAIRS = [("one two", " three"), ("one", " two three")]


def likelihood(prefix: str, continuation: str) -> list[float]:
    return [-0.5] * len(continuation.split())


def odds(messages: Any, labels: Any, forced: str) -> LabelOdds:
    return LabelOdds({label: 1 / len(labels) for label in labels}, 0.5, tuple(labels[1:]))


def attention(prompt: Any, spans: Any) -> list[float]:
    return [0.25 for _ in spans]


@pytest.fixture
def scripts() -> dict[str, Any]:
    return {"likelihood": likelihood, "labels": odds, "attention": attention}


async def test_likelihoods_are_metered_and_traced(make_run, scripts):
    run, _ = make_run(None, **scripts)
    assert await run.likelihoods(PAIRS) == [[-0.5], [-0.5, -0.5]]
    report = run.meter.report()
    assert (report.calls, report.scoring_passes, report.input_tokens) == (0, 2, 6)
    assert report.by_role["scorer"]["scoring_passes"] == 2
    [asking], [measured] = events(run, Asking), events(run, Measured)
    assert (asking.what, asking.role, asking.prompt_tokens) == ("likelihood", "scorer", 6)
    assert (measured.signal, measured.model) == ("likelihood", "scripted")
    assert measured.values == (-0.5, -1.0)
    assert "three" not in str(run.trace.to_json())


async def test_label_odds_are_metered_traced_and_bounds_are_said_once(make_run, scripts):
    run, _ = make_run(None, **scripts)
    for _ in range(2):
        given = await run.labels(ASK, ["yes", "no"], forced="[")
        assert given == LabelOdds({"yes": 0.5, "no": 0.5}, 0.5, ("no",))
    assert run.meter.report().scoring_passes == 4
    assert run.meter.tokens == 2 * (8 + 1 + 2)
    seen = events(run, Measured)[0]
    assert (seen.signal, seen.labels, seen.values) == ("labels", ("yes", "no"), (0.5, 0.5))
    assert (seen.mass, seen.bounded) == (0.5, ("no",))
    [warning] = run.warnings
    assert "scripted does not report the odds of every label" in warning


async def test_what_a_model_does_not_declare_is_refused_in_one_line(make_run):
    run, _ = make_run(None, name="openai:small")
    with pytest.raises(MissingCapability, match=r"openai:small gives no likelihoods.*scorer.*hf:"):
        await run.likelihoods(PAIRS)
    with pytest.raises(MissingCapability, match=r"openai:small gives no label odds.*judge.*gguf:"):
        await run.labels(ASK, ["yes"], role=Role.JUDGE)
    with pytest.raises(MissingCapability, match=r"openai:small gives no attention.*bundled"):
        await run.attention("text", [(0, 4)])
    assert run.meter.calls == []


async def test_what_does_not_fit_the_window_is_refused_before_the_call(make_run, scripts):
    run, _ = make_run(None, context_tokens=8, **scripts)
    await run.likelihoods([("one two three four", " five six seven eight")])
    for call in (
        run.likelihoods([("one", "two"), ("one two three four", " five six seven eight nine")]),
        run.labels(ASK, ["yes"]),
        run.attention("one two three four five six seven eight nine", [(0, 1)]),
    ):
        with pytest.raises(ContextTooSmall, match="about 9 tokens, the window is 8"):
            await call
    assert len(run.meter.calls) == 1


async def test_what_the_budget_does_not_hold_is_refused_before_the_call(make_run, scripts):
    run, _ = make_run(None, max_tokens=15, **scripts)
    await run.likelihoods(PAIRS)
    for call in (
        run.likelihoods([(" one" * 9, " two")]),
        run.labels(ASK, ["yes", "no"]),
        run.attention(" one" * 10, [(0, 1)]),
    ):
        with pytest.raises(BudgetExceeded, match=r"6 tokens are used.*take 10, the limit is 15"):
            await call
    await run.attention(" one" * 9, [(0, 1)])
    assert run.meter.tokens == 15


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[ResponseCache]:
    cache = ResponseCache(tmp_path / "responses.db")
    yield cache
    cache.close()


async def test_what_was_remembered_costs_nothing(cache, scripts):
    model = CachedChat(ScriptedModel(**scripts), cache)
    run = Run(None, {Role.READER: model}, Meter())  # type: ignore[arg-type]
    assert await run.likelihoods(PAIRS) == [[-0.5], [-0.5, -0.5]]
    assert (run.meter.tokens, run.meter.report().scoring_passes) == (6, 2)
    await run.likelihoods(PAIRS)
    await run.labels(ASK, ["yes", "no"])
    await run.labels(ASK, ["yes", "no"])
    assert (run.meter.tokens, run.meter.report().scoring_passes) == (6 + 10, 4)
    assert [event.usage.input_tokens for event in events(run, Measured)] == [6, 0, 10, 0]
