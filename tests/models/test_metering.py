"""What a run cost, and what is said when it cannot be known."""

import asyncio

import pytest

from colligate.models import Role, Usage, metering
from colligate.models.metering import Meter, find_cost
from colligate.models.names import OPENAI_DEFAULT


@pytest.fixture
def meter(monkeypatch: pytest.MonkeyPatch) -> Meter:
    def cost(model: str, usage: Usage) -> float | None:
        if model != "openai:dear":
            return find_cost(model, usage)
        fresh = usage.input_tokens - usage.cached_tokens
        return (2 * fresh + 0.5 * usage.cached_tokens + 10 * usage.output_tokens) / 1e6

    monkeypatch.setattr(metering, "find_cost", cost)
    return Meter()


def test_sums_by_role(meter):
    meter.chat(Role.READER, "openai:dear", Usage(1000, 100, cached_tokens=400), seconds=2)
    meter.chat(Role.WORKER, "openai:dear", Usage(10, 1), seconds=1)
    meter.scoring(Role.SCORER, "gguf:x", passes=20, seconds=0.5)
    meter.retrieval()
    report = meter.report()
    # 600 fresh at 2 $/M, 400 cached at 0.5, 100 out at 10; 10 at 2 and 1 at 10.
    assert report.cost_usd == pytest.approx((1200 + 200 + 1000 + 20 + 10) / 1e6)
    assert (report.calls, report.scoring_passes, report.retrieval_rounds) == (2, 20, 1)
    assert (report.input_tokens, report.output_tokens) == (1010, 101)
    assert report.cached_tokens == 400
    assert report.seconds == pytest.approx(3.5)
    assert meter.tokens == 1111
    assert list(report.by_role) == ["reader", "worker", "scorer"]
    assert report.by_role["reader"]["output_tokens"] == 100
    assert meter.warnings == []
    assert meter.report(seconds=9).to_json()["seconds"] == 9


def test_an_unknown_price_is_not_zero_and_said_once(meter):
    for _ in range(2):
        meter.chat("reader", "openai:mystery", Usage(1, 1), seconds=1)
    meter.chat("worker", "bundled", Usage(1, 1), seconds=1)
    report = meter.report()
    assert report.cost_usd is None
    assert report.by_role["worker"]["cost_usd"] == 0
    assert len(meter.warnings) == 1
    assert "openai:mystery" in meter.warnings[0]


def test_cached_answers_cost_nothing(meter):
    meter.chat("reader", "openai:mystery", Usage(1000, 10), seconds=0.1, cached=True)
    report = meter.report()
    assert (report.calls, report.input_tokens, report.cost_usd) == (0, 0, 0)
    assert meter.tokens == 0
    assert meter.warnings == []


async def test_work_about_documents_alone_is_summed_apart(meter):
    async def structure() -> None:
        await asyncio.sleep(0)
        meter.chat("worker", "openai:dear", Usage(500_000, 0), seconds=3)

    meter.chat("reader", "openai:dear", Usage(10, 1), seconds=1)
    with meter.offline():
        async with asyncio.TaskGroup() as group:
            group.create_task(structure())
            group.create_task(structure())
    meter.chat("reader", "openai:dear", Usage(10, 1), seconds=1)
    report = meter.report(seconds=9)
    assert (report.calls, report.input_tokens) == (4, 1_000_020), "the whole is not less"
    assert (report.offline["calls"], report.offline["input_tokens"]) == (2, 1_000_000)
    assert report.offline["cost_usd"] == 2.0
    assert 0 < report.offline["seconds"] < 3, "the time of overlapping work counts once"
    assert report.to_json()["offline"]["calls"] == 2


async def test_calls_are_summed_by_the_steps_that_a_method_names(meter):
    async def call(tokens: int) -> None:
        meter.chat("reader", "bundled", Usage(tokens, 1), seconds=1)

    with meter.step("reason"):
        await call(10)
    await call(1000)
    with meter.step("summarise"):
        await asyncio.gather(call(20), call(30))
    report = meter.report()
    read = {step: sums["input_tokens"] for step, sums in report.by_step.items()}
    assert read == {"reason": 10, "summarise": 50}
    assert report.to_json()["by_step"]["summarise"]["calls"] == 2


def test_times_that_overlap_are_split_once():
    meter = Meter(reading_seconds=2.0)
    for _ in range(2):
        meter.chat("reader", "m", Usage(10, 1), seconds=30.0)  # both end now
    meter.retrieval(0.5)
    split = meter.report(seconds=33.0).split
    rounded = {what: round(seconds, 1) for what, seconds in split.items()}
    assert rounded == {"files": 2.0, "search": 0.5, "model": 30.0}


@pytest.mark.parametrize(
    "model",
    [
        "gpt-5",
        "gpt-5@https://name.openai.azure.com/openai/v1",
        "claude-sonnet-4-5@https://api.anthropic.com/v1",
        "gemini-2.5-flash@https://generativelanguage.googleapis.com/v1beta/openai",
        "deepseek-chat@https://api.deepseek.com/v1",
    ],
)
def test_what_a_provider_read_from_its_cache_costs_less(model):
    whole, cached = (find_cost(f"openai:{model}", Usage(1000, 10, read)) for read in (0, 900))
    assert whole
    assert cached
    assert cached < 0.6 * whole


HERE, NOT_KNOWN = 0, None


@pytest.mark.parametrize(
    ("model", "usd"),
    [
        ("bundled", HERE),
        ("bundled+adapters/router", HERE),
        ("gguf:/some/file.gguf", HERE),
        ("minilm-l6-v2-int8", HERE),
        ("wordllama-256", HERE),
        ("openai:llama@http://localhost:11434/v1", HERE),
        ("openai:llama@http://127.0.0.1:8000/v1", HERE),
        ("openai:llama@http://[::1]:8000/v1", HERE),
        ("openai:openai/gpt-oss-20b@http://localhost:8000/v1", HERE),
        ("openai:gpt-5.5@https://proxy.example/v1", NOT_KNOWN),
        ("openai:x@http://localhost.example.com/v1", NOT_KNOWN),
        ("openai:x@http://127.example.com/v1", NOT_KNOWN),
        ("openai:gpt-5.4-maxi", NOT_KNOWN),
        ("openai:bedrock/anthropic.claude-sonnet-4@http://localhost:4000/v1", NOT_KNOWN),
        ("http:cohere/rerank-v3.5@http://localhost:4000/rerank", NOT_KNOWN),
        ("openai:gpt-4o-mini", 0.15 + 0.6),
        ("openai:gpt-5.4-mini-2026-03-17", 0.75 + 4.5),
        ("openai:claude-sonnet-4-5@https://api.anthropic.com/v1", 3 + 15),
    ],
)
def test_prices_are_those_of_model_and_address(model, usd):
    # A thousand calls of a thousand tokens: prices may rise with the length of the prompt.
    cost = find_cost(model, Usage(1000, 1000))
    assert cost == usd if usd is None else cost * 1000 == pytest.approx(usd)


def test_the_default_model_has_a_price():
    assert find_cost(f"openai:{OPENAI_DEFAULT}", Usage(1000, 1000))
