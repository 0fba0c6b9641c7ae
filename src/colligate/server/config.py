"""Where the server listens, who may ask it, and how much work it accepts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from colligate.errors import UsageError
from colligate.library.web import is_loopback as is_loopback

_MEBIBYTE = 1 << 20

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DEFAULT_LIBRARY = "default"
"""The name of the library that the server was started with."""

LIBRARY_NAME = r"[a-z0-9][a-z0-9_-]{0,63}"
"""The pattern of the names of libraries."""

LIBRARIES_SUFFIX = ".libraries"
"""Ends the name of the folder of all other libraries: `papers.libraries/` next to `papers/`."""


@dataclass(frozen=True)
class ServerConfig:
    """The options of `colligate serve`. Sizes are in bytes, times in seconds.

    Every client must send the `token`, which allows everything, or one of those in the file
    `tokens`; with neither, anyone who reaches the port may ask. Pages of `allow_origins` may too.
    A proxy in one of the networks `trusted_proxies` names one of `tokens` in the header
    `proxy_user_header`. `audit` is the file of the audit log, which has the texts of questions with
    `audit_questions`.

    `upload_bytes` and `upload_files` limit one upload, `uploads` the uploads received at once,
    `body_bytes` any other request. At most `runs` questions are answered at once and `waiting`
    more wait. At most `jobs` uploads are being read or wait for it, and `libraries` exist. Of each
    library the last `kept_runs` runs are kept, within `kept_bytes`, each with at most `run_bytes`
    of events. On shutdown, runs and uploads have `grace` seconds to finish.

    At most `connections` are open, and never more than half of the descriptors that the process may
    have. A client has `header_seconds` to send the headers of a
    request; its body may pause for `body_seconds`, and so may its reading of a response.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    token: str | None = None
    tokens: Path | None = None
    proxy_user_header: str | None = None
    trusted_proxies: tuple[Network, ...] = ()
    audit: Path | None = None
    audit_questions: bool = False
    allow_origins: tuple[str, ...] = ()
    upload_bytes: int = 512 * _MEBIBYTE
    upload_files: int = 200
    uploads: int = 8
    body_bytes: int = _MEBIBYTE
    question_characters: int = 8_000
    runs: int = 4
    waiting: int = 64
    jobs: int = 32
    libraries: int = 64
    kept_runs: int = 200
    kept_bytes: int = 512 * _MEBIBYTE
    run_bytes: int = 64 * _MEBIBYTE
    grace: float = 20.0
    connections: int = 1024
    header_seconds: float = 20.0
    body_seconds: float = 60.0

    def __post_init__(self) -> None:
        given = (self.proxy_user_header, self.trusted_proxies, self.tokens)
        if any(given[:2]) and not all(given):
            why = "--proxy-user-header, --trusted-proxy and --tokens go together"
            raise UsageError("a proxy cannot say who asks", why)

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


def parse_network(given: str) -> Network:
    """Return the network of an address such as 10.0.0.7, or of 10.0.0.0/8."""
    try:
        return ipaddress.ip_network(given, strict=False)
    except ValueError:
        hint = "write it as 10.0.0.7, 10.0.0.0/8 or ::1"
        raise UsageError(f"{given!r} is no address and no network", "", hint) from None
