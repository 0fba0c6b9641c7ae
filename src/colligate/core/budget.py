"""What a run may spend, kept before each call and while calls are under way side by side."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from colligate.errors import BudgetExceeded, ContextTooSmall
from colligate.models import ChatModel
from colligate.models.metering import Meter


@dataclass(frozen=True)
class Budget:
    """What a run may spend: tokens in and out together. None is without limit."""

    max_tokens: int | None = None


class TokenBudget:
    """A budget being spent: what is used stands in the meter, what calls under way may take here.

    So that calls side by side do not all spend the same last tokens. It is kept as exactly as the
    model counts its prompts and keeps to `max_tokens`.
    """

    def __init__(self, budget: Budget, meter: Meter) -> None:
        self._limit = budget.max_tokens
        self._meter = meter
        self._held = 0
        self._reserved = 0
        self._freed = asyncio.Event()

    @property
    def left(self) -> int | None:
        """Tokens that are neither used, nor held by a call, nor reserved; None without limit."""
        if self._limit is None:
            return None
        return max(0, self._limit - self._reserved - self._meter.tokens - self._held)

    @contextmanager
    def reserve(self, tokens: int) -> Iterator[None]:
        """Keep tokens for a last step: until the end, calls see a limit that is smaller by them.

        Raises:
            BudgetExceeded: not even these are left.
        """
        left = self.left
        if left is not None and tokens > left:
            raise BudgetExceeded(
                "the token budget is too small",
                f"{left} tokens are left of {self._limit}, and the last step alone may "
                f"take {tokens}",
                "raise --max-tokens-total",
            )
        self._reserved += tokens
        try:
            yield
        finally:
            self._reserved -= tokens

    @asynccontextmanager
    async def hold(self, tokens: int) -> AsyncIterator[None]:
        """Set the most a call may take aside until it is done; the call is metered inside.

        Waits for calls under way when these may leave enough.

        Raises:
            BudgetExceeded: not enough is left.
        """
        while not self._decided(tokens):
            await self._freed.wait()
        used, kept = self._meter.tokens, self._reserved
        if self._limit is not None and used + kept + tokens > self._limit:
            reserved = f", {kept} are kept for the last step" if kept else ""
            raise BudgetExceeded(
                "the token budget is spent",
                f"{used} tokens are used{reserved} and the next call may take {tokens}, "
                f"the limit is {self._limit}",
                "raise --max-tokens-total",
            )
        self._held += tokens
        try:
            yield
        finally:
            self._held -= tokens
            self._freed.set()
            self._freed = asyncio.Event()

    def _decided(self, tokens: int) -> bool:
        """Whether there is enough for sure, or for sure not."""
        if self._limit is None:
            return True
        limit, used = self._limit - self._reserved, self._meter.tokens
        return used + self._held + tokens <= limit or used + tokens > limit


def require_room(model: ChatModel, prompt: int, reply: int = 0) -> None:
    """Refuse a prompt that does not fit the model's window with its reply.

    Raises:
        ContextTooSmall: it does not.
    """
    window = model.context_tokens
    if window is not None and prompt + reply > window:
        beside = f" and the reply {reply}" if reply else ""
        raise ContextTooSmall(
            f"the prompt does not fit {model.name}",
            f"it has about {prompt} tokens{beside}, the window is {window}",
            "take fewer documents, retrieve-read, or a model with a larger window",
        )
