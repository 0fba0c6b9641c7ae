"""What a server does in tasks of their own, and clients follow: runs, and the reading of files."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Coroutine
from typing import Any, Literal

from pydantic import BaseModel, Field, PrivateAttr

WorkState = Literal["queued", "running", "done", "failed", "cancelled"]


class Work(BaseModel):
    """Something done in a task. Its fields are what the API shows; the id cannot be guessed."""

    id: str = Field(default_factory=lambda: secrets.token_urlsafe(16))
    library: str
    state: WorkState = "queued"
    _task: asyncio.Task[None] | None = None
    _changed: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self.state in ("done", "failed", "cancelled")

    def begin(self, doing: Coroutine[Any, Any, None], if_unstarted: Callable[[], None]) -> None:
        """Begin it. A task that is cancelled before its first step runs none of its code:
        `if_unstarted` ends the work then."""
        self._task = asyncio.create_task(doing, name=f"{type(self).__name__} {self.id}")
        self._task.add_done_callback(lambda _: None if self.ended else if_unstarted())

    def cancel(self) -> None:
        if self._task is not None and not self.ended:
            self._task.cancel()

    async def wait(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most `timeout` seconds."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=timeout)

    @property
    def changed(self) -> asyncio.Event:
        """What `wake` sets next."""
        return self._changed

    def wake(self) -> None:
        """Tell whoever follows that something has changed."""
        self._changed.set()
        self._changed = asyncio.Event()


async def finish(works: Collection[Work], grace: float = 0.0) -> None:
    """Wait for the end of all; those that have not ended after `grace` seconds are cancelled."""
    waiting = [asyncio.create_task(work.wait()) for work in works if not work.ended]
    if waiting and grace:
        await asyncio.wait(waiting, timeout=grace)
    for work in works:
        work.cancel()
    if waiting:
        await asyncio.wait(waiting)
