"""Spans of a run: what they say, what they never say, and that nobody gets them unasked."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import colligate
from colligate.errors import BudgetExceeded
from colligate.testing import ScriptedModel
from support.models import statement_reply

QUESTION = "Where do bicycles stand?"
REPLY = statement_reply("Bicycles stand in the yard", "Bicycles stand in the yard.", "in the yard")


@pytest.fixture
def spans(monkeypatch):
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace.get_tracer", provider.get_tracer)
    monkeypatch.setenv("COLLIGATE_TELEMETRY", "1")
    return exporter


@pytest.fixture
def ask(tmp_path):
    (tmp_path / "rules.md").write_text("# Rules\n\nBicycles stand in the yard, not in the hall.\n")
    model = ScriptedModel(lambda call: REPLY)
    given = {"model": model, "embedder": "static", "library": tmp_path / "library"}
    return lambda **more: colligate.ask(QUESTION, tmp_path / "rules.md", **given, **more)


def test_searches_and_calls_are_spans_of_the_run_without_texts(spans, ask):
    answer = ask(strategy="retrieve-read")
    *_, run = made = spans.get_finished_spans()
    assert run.name == "colligate retrieve-read"
    assert [span.name for span in made].count("asked") == answer.usage.calls == 1
    assert "retrieved" in [span.name for span in made]
    assert {span.parent.span_id for span in made[:-1]} == {run.context.span_id}
    (call,) = [span for span in made if span.name == "asked"]
    assert call.attributes["gen_ai.request.model"] == "scripted"
    assert call.attributes["gen_ai.usage.input_tokens"] == answer.usage.input_tokens > 0
    assert run.attributes["gen_ai.usage.input_tokens"] == answer.usage.input_tokens
    assert run.start_time <= call.start_time <= call.end_time <= run.end_time
    assert "answered" in [event.name for event in run.events]
    assert "icycles" not in "".join(span.to_json() for span in made)


def test_a_run_that_fails_says_so(spans, ask):
    with pytest.raises(BudgetExceeded):
        ask(max_tokens_total=1)
    *_, run = spans.get_finished_spans()
    assert (run.status.is_ok, run.status.description) == (False, "BudgetExceeded")
