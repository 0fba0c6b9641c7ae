"""Where the server listens, who may ask it, and how much it takes on."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field

from colligate.settings import Settings

_MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Serving:
    """What `colligate serve` was told. Sizes in bytes, times in seconds.

    `token` is what every client must send; None lets anyone ask who can reach the port.
    `allow_origins` are the web pages of other origins that may ask, `allow_models` the models that
    a question may name in a strategy's parameters: the server would load whatever they name. The
    adapters of `settings` are on the steps of every strategy.

    `upload_bytes` and `upload_files` bound one request with files, `uploads` how many such
    requests come in at once; `body_bytes` bounds any other request.
    At most `runs` questions are answered at once, `waiting` more wait; `jobs` sets of files wait
    or are read; `streams` event streams are open; `libraries` exist. The last `kept_runs` runs of
    a library are kept, in `kept_bytes`, each with `run_bytes` of events at most. When the server
    is told to stop, runs and jobs have `grace` seconds to end.
    """

    host: str = "127.0.0.1"
    port: int = 8420
    token: str | None = None
    allow_origins: tuple[str, ...] = ()
    allow_models: tuple[str, ...] = ()
    settings: Settings = field(default_factory=Settings)
    upload_bytes: int = 512 * _MEBIBYTE
    upload_files: int = 200
    uploads: int = 8
    body_bytes: int = _MEBIBYTE
    question_characters: int = 8_000
    runs: int = 4
    waiting: int = 64
    jobs: int = 32
    streams: int = 256
    libraries: int = 64
    kept_runs: int = 200
    kept_bytes: int = 512 * _MEBIBYTE
    run_bytes: int = 64 * _MEBIBYTE
    grace: float = 20.0

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether an address or name leads to this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
