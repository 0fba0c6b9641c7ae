"""What a running server holds, opened and closed together: libraries, runs, uploads, metrics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path, PurePath
from typing import Annotated, Any

from fastapi import Depends, Request
from sse_starlette import ServerSentEvent

from colligate.concurrency import in_thread
from colligate.documents import Document
from colligate.engine import Engine
from colligate.errors import ReadingError
from colligate.library.parsing import ParserPool
from colligate.library.sources import Sources
from colligate.server.audit import note_use
from colligate.server.auth import require
from colligate.server.config import DEFAULT_LIBRARY, ServerConfig
from colligate.server.errors import NotHere
from colligate.server.libraries import Libraries
from colligate.server.metrics import Metrics
from colligate.server.runs import Runs
from colligate.server.shapes import OnEvent, RunRequest
from colligate.server.stream import EventStream
from colligate.server.tables import Tables
from colligate.server.tokens import Right
from colligate.server.uploads import UploadJobs

# After the grace of the runs, for their last events and for closing connections.
SECONDS_TO_CLOSE = 5


class ServerState:
    """The parts of a running server; `libraries`, `tables`, `runs` and `jobs` exist inside `open`.

    The tools of MCP use `unread`, `open_sources` and `answer`.
    """

    libraries: Libraries
    tables: Tables
    runs: Runs
    jobs: UploadJobs

    def __init__(self, config: ServerConfig) -> None:
        self.config = config
        self.metrics = Metrics()
        self._viewer = ParserPool(1)
        self._viewing = asyncio.Lock()

    @asynccontextmanager
    async def open(self, engine: Engine) -> AsyncIterator[None]:
        """Serve an engine and close it at the end; its library is the default one."""
        async with engine:
            library = await engine.open_library()
            self.libraries = Libraries(engine, library.path, self.config.libraries)
            self.tables = Tables(self.libraries)
            self.runs = Runs(self.libraries, self.config, self.metrics, self.tables)
            self.jobs = UploadJobs(self.libraries, self.config.jobs, self.metrics)
            try:
                await self.runs.load()
                for name in self.libraries.list_names():
                    await self.jobs.resume(name)
                yield
            finally:
                await self.drain(0.0)
                await in_thread(self._viewer.close)
                await self.libraries.aclose()

    async def drain(self, grace: float) -> None:
        """Start nothing new; cancel the work that has not finished after `grace` seconds."""
        await asyncio.gather(self.runs.aclose(grace), self.jobs.aclose(grace))

    def stream(
        self,
        events: AsyncIterator[ServerSentEvent | bytes],
        on_end: Callable[[], None] = lambda: None,
        **more: Any,
    ) -> EventStream:
        """Return a response of events; `on_end` is called after it or when the client hangs up."""
        return EventStream(events, on_end, self.config.grace + SECONDS_TO_CLOSE, **more)

    def warnings(self, library: str = DEFAULT_LIBRARY) -> list[str]:
        """Return no warnings: the upload job already told its sender."""
        return []

    def unread(self, library: str = DEFAULT_LIBRARY) -> int:
        """Return the number of files sent to a library that are still to be read."""
        return self.jobs.unread(library)

    async def open_sources(self, library: str = DEFAULT_LIBRARY) -> Sources:
        require(Right.READ)
        note_use(library)
        return await self.libraries.open_library(library)

    async def view_file(
        self, library: str, document: Document, reader: Callable[[Path], object]
    ) -> Any:
        """Return what `reader` makes of the file that a document was read from, in a process apart.

        NotHere if the file is gone, or is not what was read.
        """
        name = PurePath(document.source).name  # its folder stays the server's secret
        files = await (await self.libraries.open_library(library)).files(document.id)
        for file in files:
            async with self._viewing:
                read = await in_thread(self._viewer.read, file.path, file.size, reader=reader)
            if read.sha256 != file.sha256 or not file.sha256 or file.failure:
                continue
            if read.error is not None:
                raise ReadingError(f"cannot show {name}", read.error.why, "read its text")
            return read.reading
        is_there = any(file.path.is_file() for file in files)
        why = "has changed since it was read" if is_there else "is no longer on this machine"
        hint = "index it again, or read its text"
        raise NotHere(f"cannot show {name}", f"the file {why}", hint)

    async def answer(
        self, request: RunRequest, library: str = DEFAULT_LIBRARY, on_event: OnEvent | None = None
    ) -> dict[str, Any]:
        """Return the answer or table of a recorded run, which is cancelled when the caller is."""
        require(Right.ASK)
        run = await self.runs.start(library, request)
        try:
            async for _, event in self.runs.follow(run):
                if on_event is not None:
                    on_event(json.loads(event))
        finally:
            run.cancel()
        return await run.result(request.makes)


def _state_of(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


State = Annotated[ServerState, Depends(_state_of)]
"""The server's state, as a parameter of a route."""
