"""Tools for tests: a model with scripted replies, and suites of what the protocols promise.

from colligate.testing import backend_suite, strategy_suite

@pytest.mark.parametrize("check", backend_suite)
async def test_my_backend(check):
    await check(MyModel("small"))

@pytest.mark.parametrize("check", strategy_suite(MyStrategy), ids=str)
async def test_my_strategy(check):
    await check()
"""

from colligate.testing.backends import Reply, ScriptedModel, backend_suite
from colligate.testing.strategies import FACT, Case, Given, list_ways, strategy_suite

__all__ = [
    "FACT",
    "Case",
    "Given",
    "Reply",
    "ScriptedModel",
    "backend_suite",
    "list_ways",
    "strategy_suite",
]
