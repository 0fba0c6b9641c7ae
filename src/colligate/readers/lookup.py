"""Steps of a method that may fail: what they leave is kept, with a warning."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from pydantic import BaseModel

from colligate.core.run import Run
from colligate.errors import BudgetExceeded, MalformedOutput, MissingCapability, ModelError
from colligate.models import Message, Role

T = TypeVar("T", bound=BaseModel)


@contextmanager
def reserve_for_answer(run: Run, known: Callable[[], object]) -> Iterator[None]:
    """Reserve a part of the token budget for the answer while the steps before it run.

    If the budget or a model that fails ends the steps and something is `known`, the run continues
    with the answer and a warning.

    Raises:
        BudgetExceeded: the budget is spent, and nothing is known.
        ModelError: a model failed, and nothing is known; or it lacks what a step must have.
    """
    with run.tokens.reserve_reading():
        try:
            yield
        except (BudgetExceeded, ModelError) as error:
            if isinstance(error, MissingCapability) or not known():
                raise
            budget = isinstance(error, BudgetExceeded)
            why = "the token budget ended the search early" if budget else str(error)
            run.warn(f"{why}: the answer uses what was found until then")


async def try_structured(
    messages: Sequence[Message],
    schema: type[T],
    run: Run,
    *,
    max_tokens: int,
    warning: str,
    role: Role = Role.READER,
) -> T | None:
    """Ask for a reply of this schema; if none can be read, warn and return None."""
    try:
        return (await run.structured(messages, schema, role=role, max_tokens=max_tokens)).value
    except MalformedOutput as error:
        run.warn(f"{warning}: {error.what}")
        return None
