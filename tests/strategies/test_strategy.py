"""What every registered strategy promises."""

import dataclasses
import json

import pytest

from colligate.errors import UnknownStrategy
from colligate.library.given import Given
from colligate.strategies.strategy import available, strategy, strategy_type, summary

KEYS = [
    "question",
    "strategy",
    "answer",
    "short_answer",
    "found",
    "citations",
    "evidence",
    "usage",
    "warnings",
]


@pytest.mark.parametrize("name", available())
async def test_a_strategy_keeps_the_contract(name, documents, minilm, make_run, reply):
    said = reply((1, "The tenant pays 900 euros a month", "The tenant pays 900 euros a month."))
    async with Given(documents, minilm) as sources:
        run, _ = make_run(sources, lambda call: said)
        answer = await strategy(name).answer("What does the tenant pay?", run)
    shown = json.loads(json.dumps(answer.to_json()))
    assert list(shown) == KEYS
    assert shown["strategy"] == name
    texts = {d.id: d.text for d in documents}
    for citation in answer.citations:
        assert (
            citation.quote
            == texts[citation.span.document_id][citation.span.start : citation.span.end]
        )
    assert run.meter.calls


@pytest.mark.parametrize("name", available())
def test_a_strategy_is_a_frozen_dataclass_with_a_summary(name):
    kind = strategy_type(name)
    assert kind.name == name
    assert summary(kind)
    assert dataclasses.is_dataclass(kind)
    made = strategy(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "other"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownStrategy, match="did you mean 'retrieve-read'"):
        strategy("retreive-read")


def test_an_unknown_parameter_is_a_wrong_call():
    with pytest.raises(UnknownStrategy, match="depth"):
        strategy("retrieve-read", depth=3)


def test_parameters_replace_the_papers_defaults():
    assert strategy("retrieve-read", k=3).k == 3
