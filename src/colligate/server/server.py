"""What one app has: its libraries, runs, jobs and numbers, opened and closed together."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import Depends, Request

from colligate.engine import Engine
from colligate.server.errors import Busy
from colligate.server.jobs import Jobs
from colligate.server.libraries import Libraries
from colligate.server.metrics import Metrics
from colligate.server.runs import Runs
from colligate.server.settings import Serving
from colligate.server.stream import EventStream


class Server:
    """The parts of a running server; `libraries`, `runs` and `jobs` are there inside `over`.

    `instance` is another one at each start, and no secret.
    """

    libraries: Libraries
    runs: Runs
    jobs: Jobs

    def __init__(self, serving: Serving) -> None:
        self.serving = serving
        self.metrics = Metrics()
        self.instance = secrets.token_urlsafe(16)
        self.open_streams = 0

    @asynccontextmanager
    async def over(self, engine: Engine) -> AsyncIterator[None]:
        """Serve an engine, which is closed at the end; its library is the default one.

        Raises:
            LibraryError: the library cannot be opened.
        """
        async with engine:
            library = await engine.open_library()
            await library.hold()
            folder = library.path
            self.libraries = Libraries(engine, folder, self.serving.libraries)
            self.runs = Runs(self.libraries, self.serving, self.metrics)
            self.jobs = Jobs(self.libraries, self.serving.jobs, self.metrics)
            try:
                await self.runs.load()
                for name in self.libraries.names():
                    await self.jobs.tidy(name)  # files that a server left unread when it ended
                yield
            finally:
                await self.drain(0.0)
                await self.libraries.aclose()

    async def drain(self, grace: float) -> None:
        """Begin nothing more; what is under way has `grace` seconds to end, then is cancelled."""
        await asyncio.gather(self.runs.aclose(grace), self.jobs.aclose(grace))

    def open_stream(self) -> Callable[[], None]:
        """Count a stream that is about to open; call what is returned when it has ended.

        Raises:
            Busy: too many are open.
        """
        if self.open_streams >= self.serving.streams:
            raise Busy("too many event streams are open", "", "close some, or try later")
        self.open_streams += 1
        self.metrics.streams.set(self.open_streams)

        def close() -> None:
            self.open_streams -= 1
            self.metrics.streams.set(self.open_streams)

        return close

    def stream(
        self, events: AsyncIterator[bytes], ended: Callable[[], None] | None = None
    ) -> EventStream:
        """A response of events; `ended` is called after it, or when the client has hung up.

        Raises:
            Busy: too many streams are open.
        """
        close = self.open_stream()

        def over() -> None:
            close()
            if ended is not None:
                ended()

        return EventStream(events, over)


def _of_app(request: Request) -> Server:
    server: Server = request.app.state.server
    return server


TheServer = Annotated[Server, Depends(_of_app)]
"""The server, for a path operation."""
