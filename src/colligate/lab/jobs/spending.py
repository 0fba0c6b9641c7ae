"""One token budget for all items of a job, which no item can see.

A strategy that saw what is left of the job's budget would answer differently near its end. So each
run has no limit of its own. When the job's budget is spent, calls are refused, and the result of a
run that was refused a call is not kept.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace

from colligate.core.budget import TokenBudget
from colligate.errors import BudgetExceeded
from colligate.models import Capability, ChatModel, ChatRequest, Completion, OnToken, Role
from colligate.models.base import WrappedModel
from colligate.models.metering import Call, Meter, UsageReport


class Spending:
    """The tokens of all runs together, in and out; `limit` None means no limit."""

    def __init__(self, limit: int | None = None) -> None:
        self._total = Meter()
        self.budget = TokenBudget(limit, self._total)

    @property
    def tokens(self) -> int:
        """The tokens spent so far."""
        return self._total.tokens

    def meter(self) -> Meter:
        """Return a meter for one run, which also counts here."""
        return _RunMeter(total=self._total)


@dataclass
class _RunMeter(Meter):
    """A run's meter that adds its tokens to those of all runs, but for replies of a cache."""

    total: Meter = field(default_factory=Meter)
    remembered: int = 0

    def record(self, call: Call) -> Call:
        if call.cached:
            self.remembered += call.passes or 1
        else:
            self.total.tokens += call.usage.input_tokens + call.usage.output_tokens
        return super().record(replace(call, cached=False))

    def report(self, *, seconds: float | None = None) -> UsageReport:
        return replace(super().report(seconds=seconds), remembered=self.remembered)


class SharedTokenBudget(TokenBudget):
    """A run's budget, paid from the job's; `refused` is the error of the first call it refused."""

    def __init__(self, spending: Spending, meter: Meter) -> None:
        super().__init__(None, meter)
        self._all = spending.budget
        self.refused: BudgetExceeded | None = None

    @asynccontextmanager
    async def hold(self, tokens: int) -> AsyncIterator[None]:
        """Reserve the most a call may take from the job's budget until it is done."""
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self._all.hold(tokens))
            except BudgetExceeded as error:
                self.refused = self.refused or error
                raise
            yield


class PaidJudge(WrappedModel):
    """A judge, paid from the job's budget; its calls count in a meter of its own, or in `meter`."""

    def __init__(self, model: ChatModel, spending: Spending, meter: Meter | None = None) -> None:
        super().__init__(model)
        self._meter = meter or spending.meter()
        self._all = spending.budget

    @property
    def capabilities(self) -> frozenset[Capability]:
        return self._model.capabilities & {Capability.CHAT, Capability.STRUCTURED}

    async def chat(self, request: ChatRequest, on_token: OnToken | None = None) -> Completion:
        """Make one call; see `ChatModel.chat`."""
        prompt = await self._model.count_prompt(request.messages)
        async with self._all.hold(prompt + request.max_tokens):
            began = time.perf_counter()
            reply = await self._model.chat(request, on_token)
            took, cached = time.perf_counter() - began, reply.cached
            self._meter.chat(Role.JUDGE, self.name, reply.usage, seconds=took, cached=cached)
        return reply

    async def aclose(self) -> None:
        """Do nothing: the owner of the model closes it."""
