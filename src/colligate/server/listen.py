"""The socket: listening until told to stop, then letting what is under way end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from uvicorn.server import HANDLED_SIGNALS

from colligate.core.events import Listener
from colligate.engine import Engine
from colligate.errors import UsageError
from colligate.library.address import Address, publish_address, withdraw_address
from colligate.server.answering import DEFAULT_LIBRARY
from colligate.server.app import create_app
from colligate.server.server import Server
from colligate.server.settings import Serving

_log = logging.getLogger(__name__)
_BACKLOG = 512
_LOOK = 0.1  # seconds between two looks for a second signal
_SECONDS_TO_CLOSE = 5  # for connections, after the runs have ended


async def listen(
    serving: Serving,
    make_engine: Callable[[], Engine],
    *,
    on_opening: Listener,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    The models are opened first, which `on_opening` is told of; `on_ready` is told the address
    once connections are taken.

    Raises:
        UsageError: the address cannot be listened at.
        ColligateError: what the engine could not open.
    """
    app = create_app(serving, make_engine)
    listening = _socket(serving)
    host = f"[{serving.host}]" if ":" in serving.host else serving.host
    url = f"http://{host}:{listening.getsockname()[1]}/"
    config = uvicorn.Config(
        app,
        lifespan="off",  # opened here, so that what goes wrong is said in its own words
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=int(serving.grace) + _SECONDS_TO_CLOSE,
    )
    with listening:
        async with app.router.lifespan_context(app):
            server: Server = app.state.server
            await server.libraries.engine(DEFAULT_LIBRARY).open_models(on_opening)
            listening.listen(_BACKLOG)  # from here on clients wait instead of being turned away
            here = Address(_from_here(url), serving.token, server.instance, os.getpid())
            listener = _Listener(config, server, serving.grace)
            # Signals are heard before anybody is told that there is a server to stop.
            with listener.capture_signals(), _published(server, here):
                on_ready(url)
                await listener.serve(sockets=[listening])


@contextmanager
def _published(server: Server, address: Address) -> Iterator[None]:
    """Meanwhile commands of the same person find the server beside the library."""
    library = server.libraries.folder(DEFAULT_LIBRARY)
    try:
        publish_address(library, address)
    except OSError as error:
        _log.warning("commands will not find this server: %s", error)
    try:
        yield
    finally:
        withdraw_address(library, address)


def _from_here(url: str) -> str:
    """The same address for this machine, where it stands for all addresses of it.

    >>> _from_here("http://0.0.0.0:8420/"), _from_here("http://[::]:8420/")
    ('http://127.0.0.1:8420/', 'http://[::1]:8420/')
    """
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


class _Listener(uvicorn.Server):
    """Runs and jobs get their grace before connections are closed."""

    def __init__(self, config: uvicorn.Config, server: Server, grace: float) -> None:
        super().__init__(config)
        self._server = server
        self._grace = grace

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop taking connections, let what is under way end; a second signal ends the waiting."""
        draining = asyncio.create_task(self._server.drain(self._grace))
        await super().shutdown(sockets)
        while not draining.done() and not self.force_exit:
            await asyncio.wait([draining], timeout=_LOOK)
        draining.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """The first signal stops the server, the second ends its waiting."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals stop the server and no more: uvicorn would raise them again before the end."""
        before = {each: signal.signal(each, self.handle_exit) for each in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _socket(serving: Serving) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            serving.host, serving.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot(serving, error) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise _cannot(serving, error) from error
    return made


def _cannot(serving: Serving, error: OSError) -> UsageError:
    what = f"cannot listen at {serving.host} port {serving.port}"
    return UsageError(what, error.strerror or str(error), "name another --host or --port")
