"""What every registered strategy promises."""

import dataclasses
import json

import pytest

from colligate.core import list_strategies, make_strategy
from colligate.core.strategy import load_strategy, summarize
from colligate.documents.tokens import token_spans
from colligate.errors import UnknownStrategy, UsageError, WeightsUnavailable
from colligate.library.in_memory import InMemorySources
from colligate.models import LabelOdds
from support.plugins import installed

KEYS = [
    "question",
    "strategy",
    "answer",
    "short_answer",
    "found",
    "ground",
    "how",
    "citations",
    "evidence",
    "usage",
    "warnings",
]


# What one cannot do without, and those that refuse without weights made for them.
GIVEN = {"oracle": {"gold": ("lease",)}}
TRAINED = {"llmlingua2", "recomp"}


def surprised(prefix, text):
    return [-1.0 - at % 3 for at, _ in enumerate(token_spans(text))]


def undecided(messages, labels, forced):
    return LabelOdds({label: 1 / len(labels) for label in labels}, mass=1.0)


@pytest.fixture
def answered(documents, minilm, make_run, reply):
    """`await answered(name)` is the run and the answer of a strategy by capable models."""
    said = reply((1, "The tenant pays 900 euros a month", "The tenant pays 900 euros a month."))

    async def answer(name):
        async with InMemorySources(documents, minilm) as sources:
            run, _ = make_run(
                sources,
                lambda call: said,
                embedder=minilm,
                likelihood=surprised,
                labels=undecided,
                attention=lambda prompt, spans: [0.1] * len(spans),
            )
            made = make_strategy(name, **GIVEN.get(name, {}))
            return run, await made.answer("What does the tenant pay?", run)

    return answer


@pytest.mark.parametrize("name", sorted(TRAINED))
async def test_a_strategy_of_trained_weights_says_which_it_needs(name, answered):
    with pytest.raises(WeightsUnavailable, match=f"{name} needs a trained"):
        await answered(name)


@pytest.mark.parametrize("name", [name for name in list_strategies() if name not in TRAINED])
async def test_a_strategy_keeps_the_contract(name, documents, answered):
    run, answer = await answered(name)
    shown = json.loads(json.dumps(answer.to_json()))
    assert list(shown) == KEYS
    assert shown["strategy"] == ""  # the engine and the bench say it
    texts = {d.id: d.text for d in documents}
    for citation in answer.citations:
        assert (
            citation.quote
            == texts[citation.span.document_id][citation.span.start : citation.span.end]
        )
    assert run.meter.calls


@pytest.mark.parametrize("name", list_strategies())
def test_a_strategy_is_a_frozen_dataclass_with_a_summary(name):
    kind = load_strategy(name)
    assert kind.name == name
    assert summarize(kind)
    assert dataclasses.is_dataclass(kind)
    made = make_strategy(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "other"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownStrategy, match="did you mean 'retrieve-read'"):
        make_strategy("retreive-read")


def test_an_unknown_parameter_is_a_wrong_call():
    with pytest.raises(UnknownStrategy, match="depth"):
        make_strategy("retrieve-read", depth=3)


def test_parameters_replace_the_papers_defaults():
    assert make_strategy("retrieve-read", k=3).k == 3


def test_a_strategy_that_cannot_be_imported_is_named_with_its_package(tmp_path):
    broken = "import no_such_module"
    with (
        installed(tmp_path, broken, {"strategies": {"lost": "toy:Lost"}}),
        pytest.raises(UsageError, match=r"cannot load 'lost' .*toy:Lost.*no_such_module"),
    ):
        load_strategy("lost")
