"""One budget of tokens for a whole bench, that no row feels.

A strategy that saw what is left of the bench's budget would answer otherwise near its end. So
each run has no limit of its own; where the bench's is spent its calls are refused, and what comes
of a run that was refused one is no row.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from colligate.errors import BudgetExceeded
from colligate.models.metering import Call, Meter, Prices
from colligate.strategies.budget import Budget, Purse


class Spending:
    """The tokens of all runs together, in and out; `limit` None is without limit."""

    def __init__(self, limit: int | None = None) -> None:
        self.prices = Prices.load()
        self._total = Meter(prices=self.prices)
        self.purse = Purse(Budget(limit), self._total)

    @property
    def tokens(self) -> int:
        """What was spent so far."""
        return self._total.tokens

    def meter(self) -> Meter:
        """A meter for one run, which also counts here."""
        return _Metered(prices=self.prices, total=self._total)


@dataclass
class _Metered(Meter):
    """A run's meter that adds its tokens to those of all runs."""

    total: Meter = field(default_factory=Meter)

    def record(self, *arguments: Any, **options: Any) -> Call:
        before = self.tokens
        call = super().record(*arguments, **options)
        self.total.tokens += self.tokens - before
        return call


class RunPurse(Purse):
    """A run's purse: without a limit, its calls are paid from the bench's.

    `refused` is the error of the first call that the bench's budget did not allow.
    """

    def __init__(self, spending: Spending, meter: Meter) -> None:
        super().__init__(Budget(), meter)
        self._all = spending.purse
        self.refused: BudgetExceeded | None = None

    @asynccontextmanager
    async def hold(self, tokens: int) -> AsyncIterator[None]:
        """Set the most a call may take aside, of the bench's budget.

        Raises:
            BudgetExceeded: not enough is left.
        """
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._all.hold(tokens))
            except BudgetExceeded as error:
                self.refused = self.refused or error
                raise
            yield
