"""Connections: how many may be open, how long a client may take, and the log of what goes wrong.

A client that connects and sends nothing, or half a request, costs a descriptor before it can be
asked for a token. So places are bounded and time is limited below HTTP.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from colligate.server.audit import AUDIT
from colligate.server.config import ServerConfig

_log = logging.getLogger(__name__)

# How long a connection stays open between two requests. Longer than clients and proxies keep one
# (a minute as a rule): who closes first must not be the server, while a request is on its way.
SECONDS_KEPT = 75


def bound_connections(config: ServerConfig, descriptors: int) -> tuple[int, int]:
    """Return the most connections, and how many may wait to be accepted.

    Half of the `descriptors` that may be open are for connections, an eighth for those that arrive
    in one moment; the rest is for the library, for models and for parsers.
    """
    return max(1, min(config.connections, descriptors // 2)), max(1, min(512, descriptors // 8))


class Connection(H11Protocol):
    """An HTTP connection that is closed when its client is too slow, or its place is needed.

    When all places are taken, a new connection gets the place of the one that has waited longest
    for a request. If each has a request under way, the new one is refused.
    """

    def __init__(self, *given: Any, limits: ServerConfig, most: int, **named: Any) -> None:
        super().__init__(*given, **named)
        self._limits = limits
        self._most = most
        self._awaited: Any = None  # h11's state of the client
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()
        others = [each for each in self.connections if isinstance(each, Connection)]
        there = [each for each in others if not each.transport.is_closing()]
        idle = [each for each in there if each is not self and not each._busy]
        if len(there) > self._most and idle:
            min(idle, key=lambda each: each._since).transport.abort()
        elif len(there) > self._most:
            _log.warning("a connection is refused: as many as may be open have a request under way")
            self._hang_up("503 Service Unavailable")

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        for timer in (self._timer, self._unread):
            if timer is not None:
                timer.cancel()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # uvicorn ends a rest between two requests that is too long.
        self._watch(rests=self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0])

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self._limits.body_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()

    @property
    def _busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _watch(self, *, rests: bool = False) -> None:
        """Limit the time for what the client has to send next."""
        awaited = None if rests else self.conn.their_state
        if awaited is self._awaited is h11.IDLE:
            return  # a part of the headers does not give more time for the rest
        self._awaited, self._since = awaited, self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if awaited in (h11.IDLE, h11.SEND_BODY):
            in_headers = awaited is h11.IDLE
            limits = self._limits
            seconds = limits.header_seconds if in_headers else limits.body_seconds
            self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        if self.flow.read_paused:  # the client cannot send because the server does not read
            self._watch()
        elif self._awaited is h11.IDLE and not self.conn.trailing_data[0]:
            self.transport.abort()  # nothing has come: a browser opens connections in advance
        else:
            self._hang_up("408 Request Timeout")

    def _hang_up(self, status: str) -> None:
        """Close the connection, with a response unless one has begun."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(
                f"HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n".encode()
            )
        self.transport.abort()


_MANY = 65_536  # descriptors, where the limit is "infinite", or there is none


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; return how many may be open."""
    try:
        import resource
    except ImportError:  # Windows
        return _MANY
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, _MANY) if hard == resource.RLIM_INFINITY else hard
    with suppress(OSError, ValueError):  # macOS has a lower limit that it does not report
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    return soft


def log_to_stderr() -> None:
    """Write warnings, and the use of tokens, to standard error; a program's handlers are kept.

    A handler on the root logger keeps other packages from adding theirs.
    """
    logging.basicConfig(
        level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    AUDIT.setLevel(logging.INFO)
