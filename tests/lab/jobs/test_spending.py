"""One budget for all items of a job."""

from __future__ import annotations

import pytest

from colligate.errors import BudgetExceeded
from colligate.lab.jobs.spending import PaidJudge, Spending
from colligate.models import Message
from colligate.testing import ScriptedModel
from support.models import ask


async def test_a_judge_spends_from_the_same_budget() -> None:
    spending = Spending(200)
    model = ScriptedModel(["Yes", "No"])
    judge = PaidJudge(model, spending)

    await ask(judge, [Message("user", "Is it?")], max_tokens=10)

    assert 0 < spending.tokens < 20
    with pytest.raises(BudgetExceeded):
        await ask(judge, [Message("user", "Is it?")], max_tokens=200)
