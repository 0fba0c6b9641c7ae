"""Tools for tests: a model with scripted replies, and suites of what the protocols promise.

from colligate.testing import backend_suite, strategy_suite

@pytest.mark.parametrize("check", backend_suite)
async def test_my_backend(check):
    await check(MyModel("small"))

@pytest.mark.parametrize("check", strategy_suite(MyStrategy), ids=str)
async def test_my_strategy(check):
    await check()
"""

from colligate.testing.backends import (
    Reply,
    ScriptedModel,
    backend_suite,
    check_completion,
    check_embedding,
    check_reranking,
    check_stream,
    check_token_spans,
    embedder_suite,
    reranker_suite,
)
from colligate.testing.strategies import (
    FACT,
    Case,
    Given,
    StrategyCheck,
    list_ways,
    strategy_suite,
)

__all__ = [
    "FACT",
    "Case",
    "Given",
    "Reply",
    "ScriptedModel",
    "StrategyCheck",
    "backend_suite",
    "check_completion",
    "check_embedding",
    "check_reranking",
    "check_stream",
    "check_token_spans",
    "embedder_suite",
    "list_ways",
    "reranker_suite",
    "strategy_suite",
]
