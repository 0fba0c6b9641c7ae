"""What several baselines need, refuse and do with a budget; the promises of all strategies are in
tests/strategies/test_promises.py."""

import pytest

from colligate.core.strategy import load_strategy
from colligate.documents.tokens import estimate_tokens
from colligate.errors import MissingCapability, UsageError, WeightsUnavailable
from support.documents import make_all


@pytest.mark.parametrize(
    ("name", "parameters", "lacks"),
    [
        ("longllmlingua", {}, "likelihoods"),
        ("selective-context", {}, "likelihoods"),
        ("meta-chunking", {}, "likelihoods"),
        ("meta-chunking", {"how": "msp"}, "label"),
        ("main-rag", {"units": "documents"}, "label"),
        ("flare", {"mode": "sparse"}, "likelihoods"),
        ("semantic-chunking", {"how": "meaning"}, "embedder"),
        ("reorder-dense", {}, "embedder"),
        ("metarag", {"mode": "sparse"}, "embedder"),
        ("asc", {"mode": "sparse"}, "embedder"),
    ],
)
async def test_a_missing_capability_is_named(name, parameters, lacks, documents, ask):
    # Those that write before they score are only stopped then.
    with pytest.raises(MissingCapability, match=lacks):
        await ask(load_strategy(name)(**parameters), "Rent?", documents, lambda call: "It is.")


@pytest.mark.parametrize(
    ("name", "parameters", "error", "words"),
    [
        ("oracle", {}, UsageError, "bench"),
        ("reorder-dense", {"by": "reranker"}, UsageError, "reranker"),
        ("meta-chunking", {"by": "reranker"}, UsageError, "reranker"),
        ("recomp", {}, WeightsUnavailable, "fangyuan/nq_extractive_compressor"),
        ("llmlingua2", {}, WeightsUnavailable, "microsoft/llmlingua-2-xlm-roberta-large"),
    ],
)
async def test_what_a_method_must_be_given_is_said(name, parameters, error, words, documents, ask):
    with pytest.raises(error, match=words):
        await ask(
            load_strategy(name)(**parameters), "Rent?", documents, lambda call: pytest.fail("asked")
        )


LIKELIHOOD = {"likelihood": lambda prefix, text: [-1.0] * estimate_tokens(text)}
SCORED = {
    "selective-context": ({"units": "documents", "documents": 40}, LIKELIHOOD),
    "longllmlingua": ({"units": "documents", "documents": 40}, LIKELIHOOD),
    "meta-chunking": ({"documents": 40}, LIKELIHOOD),
    "fim": (
        {"units": "documents", "documents": 40},
        {"attention": lambda prompt, spans: [0.1] * len(spans)},
    ),
}


@pytest.mark.parametrize("name", SCORED)
async def test_scores_that_cost_the_budget_leave_tokens_to_the_reader(name, ask, reply):
    parameters, scripts = SCORED[name]
    rain = "It rained all day and all night over the hills and the valley. " * 12
    made = make_all(
        {f"d{n}": f"# Place {n}\n\nCarp swim in lake {n}.\n\n{rain}" for n in range(40)}
    )
    said = reply((1, "Carp swim in lake 0.", "Carp swim in lake 0."))
    answer, run, _ = await ask(
        load_strategy(name)(**parameters),
        "What swims in lake 0?",
        made,
        lambda call: said,
        max_tokens=6000,
        **scripts,
    )
    assert answer.found
    assert run.meter.tokens <= 6000
    assert any("token budget ended" in warning for warning in run.warnings)
