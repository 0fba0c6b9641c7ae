"""What several baselines need, refuse and do with a budget; the promises of all strategies are in
tests/strategies/test_promises.py."""

import pytest

from colligate.core.strategy import load_strategy
from colligate.errors import MissingCapability, UsageError, WeightsUnavailable


@pytest.mark.parametrize(
    ("name", "parameters", "lacks"),
    [
        ("longllmlingua", {}, "likelihoods"),
        ("selective-context", {}, "likelihoods"),
        ("meta-chunking", {}, "likelihoods"),
        ("meta-chunking", {"how": "msp"}, "label"),
        ("main-rag", {"units": "documents"}, "label"),
        ("flare", {"mode": "sparse"}, "likelihoods"),
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
        ("self-rag", {}, WeightsUnavailable, "selfrag/selfrag_llama2_7b"),
    ],
)
async def test_what_a_method_must_be_given_is_said(name, parameters, error, words, documents, ask):
    with pytest.raises(error, match=words):
        await ask(
            load_strategy(name)(**parameters), "Rent?", documents, lambda call: pytest.fail("asked")
        )
