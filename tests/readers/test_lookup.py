"""The reserve for the last step, and what ends the steps before it."""

import pytest

from colligate.errors import BudgetExceeded, ModelError, ServerFailed
from colligate.readers.lookup import reserve_for_answer

FAILURES = [BudgetExceeded("the token budget is spent"), ServerFailed("the server fails", "503")]


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_of_a_later_step_leaves_what_is_known_to_the_answer(make_run, failure):
    run, _ = make_run(None)
    with reserve_for_answer(run, lambda: ["a passage"]):
        raise failure
    (warning,) = run.warnings
    assert "the answer uses what was found until then" in warning
    assert isinstance(failure, BudgetExceeded) or "503" in warning


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failure_before_anything_is_known_is_an_error(make_run, failure):
    run, _ = make_run(None)
    with pytest.raises((BudgetExceeded, ModelError)), reserve_for_answer(run, lambda: []):
        raise failure
    assert run.warnings == ()
