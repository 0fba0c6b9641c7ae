"""Budgets: what a run may spend, checked before each call and while calls run concurrently."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager

from colligate.errors import BudgetExceeded, ContextTooSmall
from colligate.models import ChatModel
from colligate.models.metering import Meter

FOR_THE_ANSWER = 6000
"""Tokens of the budget that are reserved for the answer, or half of a small budget."""


class TokenBudget:
    """The input and output tokens that a run may use: the meter knows what is used, this knows
    what running calls may take. None is no limit.

    It keeps concurrent calls from spending the same last tokens. It is as exact as the model's
    count of its prompts and its respect for `max_tokens`.
    """

    def __init__(self, limit: int | None, meter: Meter) -> None:
        self._limit = limit
        self._meter = meter
        self._held = 0
        self._reserved = 0
        self._freed = asyncio.Event()

    @property
    def left(self) -> int | None:
        """Tokens that are not used, held by a call or reserved; None without a limit."""
        if self._limit is None:
            return None
        return max(0, self._limit - self._reserved - self._meter.tokens - self._held)

    @contextmanager
    def reserve(self, tokens: int) -> Iterator[None]:
        """Reserve tokens for a last step: calls inside see a limit that is smaller by them."""
        left = self.left
        if left is not None and tokens > left:
            what = "the token budget is too small"
            why = f"{left} tokens are left of {self._limit}, the last step may take {tokens}"
            raise BudgetExceeded(what, why, "raise the token limit (--max-tokens-total)")
        self._reserved += tokens
        try:
            yield
        finally:
            self._reserved -= tokens

    def reserve_reading(self, *, once: bool = False) -> AbstractContextManager[None]:
        """Reserve a part for the reading that follows; with `once` only if nothing is reserved."""
        left = None if once and self._reserved else self.left
        return self.reserve(0 if left is None else min(FOR_THE_ANSWER, left // 2))

    @asynccontextmanager
    async def hold(self, tokens: int) -> AsyncIterator[None]:
        """Hold the most that a call may take until it is done; the call is metered inside.

        Waits for running calls if they may leave enough.
        """
        while not self._is_decided(tokens):
            await self._freed.wait()
        used, kept = self._meter.tokens, self._reserved
        if self._limit is not None and used + kept + tokens > self._limit:
            reserved = f", {kept} are kept for the last step" if kept else ""
            why = f"{used} tokens are used{reserved} and the next call may take {tokens}, "
            why += f"the limit is {self._limit}"
            hint = "raise the token limit (--max-tokens-total)"
            raise BudgetExceeded("the token budget is spent", why, hint)
        self._held += tokens
        try:
            yield
        finally:
            self._held -= tokens
            self._freed.set()
            self._freed = asyncio.Event()

    def _is_decided(self, tokens: int) -> bool:
        """Return whether it is certain that there is enough, or that there is not."""
        if self._limit is None:
            return True
        limit, used = self._limit - self._reserved, self._meter.tokens
        return used + self._held + tokens <= limit or used + tokens > limit


def require_room(model: ChatModel, prompt: int, reply: int = 0) -> None:
    """Check that a prompt fits the model's window together with its reply."""
    window = model.context_tokens
    if window is not None and prompt + reply > window:
        with_reply = f" and the reply {reply}" if reply else ""
        why = f"it has about {prompt} tokens{with_reply}, the window is {window}"
        hint = "use fewer documents, retrieve-read, or a model with a larger window"
        raise ContextTooSmall(f"the prompt does not fit {model.name}", why, hint)
