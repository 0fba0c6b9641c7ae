"""The socket: listen until told to stop, then let the work under way finish."""

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
from colligate.library.lock import Address, publish_address, withdraw_address
from colligate.server.app import create_app
from colligate.server.config import DEFAULT_LIBRARY, ServerConfig
from colligate.server.state import SECONDS_TO_CLOSE, ServerState

_log = logging.getLogger(__name__)
_BACKLOG = 512
_POLL = 0.1  # seconds between two checks for a second signal


async def listen(
    config: ServerConfig,
    make_engine: Callable[[], Engine],
    *,
    on_opening: Listener,
    on_ready: Callable[[str], None],
) -> None:
    """Serve until SIGINT or SIGTERM.

    The models are opened first, which `on_opening` hears of; `on_ready` gets the URL once
    connections are accepted.
    """
    app = create_app(config, make_engine)
    listening = _bind(config)
    host = f"[{config.host}]" if ":" in config.host else config.host
    url = f"http://{host}:{listening.getsockname()[1]}/"
    uvicorn_config = uvicorn.Config(
        app,
        lifespan="off",  # opened here, so that errors are reported in their own words
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=int(config.grace) + SECONDS_TO_CLOSE,
    )
    with listening:
        async with app.router.lifespan_context(app):
            state: ServerState = app.state.server
            await state.libraries.engine(DEFAULT_LIBRARY).open_models(on_opening)
            listening.listen(_BACKLOG)  # from here on clients wait and are not refused
            here = Address(_local(url), config.token, state.instance, os.getpid())
            server = _SignalledServer(uvicorn_config, state)
            # Signals are handled before anybody learns that there is a server to stop.
            with server.capture_signals(), _published(state, here):
                on_ready(url)
                await server.serve(sockets=[listening])


class _SignalledServer(uvicorn.Server):
    """A server whose runs and uploads get their grace before connections are closed."""

    def __init__(self, config: uvicorn.Config, state: ServerState) -> None:
        super().__init__(config)
        self._state = state

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no connections, let the work finish; a second signal ends the waiting."""
        draining = asyncio.create_task(self._state.drain(self._state.config.grace))
        await super().shutdown(sockets)
        while not draining.done() and not self.force_exit:
            await asyncio.wait([draining], timeout=_POLL)
        draining.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop the server at the first signal, and the waiting at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals without raising them again, as uvicorn does, which ends the process."""
        before = {each: signal.signal(each, self.handle_exit) for each in HANDLED_SIGNALS}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


@contextmanager
def _published(state: ServerState, address: Address) -> Iterator[None]:
    """Let commands of the same person find the server through the library's folder."""
    library = state.libraries.folder(DEFAULT_LIBRARY)
    try:
        publish_address(library, address)
    except OSError as error:
        _log.warning("commands will not find this server: %s", error)
    try:
        yield
    finally:
        withdraw_address(library, address)


def _local(url: str) -> str:
    """Replace an address that means all of this machine's by one to connect to.

    >>> _local("http://0.0.0.0:8420/"), _local("http://[::]:8420/")
    ('http://127.0.0.1:8420/', 'http://[::1]:8420/')
    """
    return url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")


def _bind(config: ServerConfig) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
    except OSError as error:
        raise _cannot_listen(config, error) from error
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except OSError as error:
        made.close()
        raise _cannot_listen(config, error) from error
    return made


def _cannot_listen(config: ServerConfig, error: OSError) -> UsageError:
    what = f"cannot listen at {config.host} port {config.port}"
    return UsageError(what, error.strerror or str(error), "choose another --host or --port")
