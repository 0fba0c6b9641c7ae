"""Where the server listens, who may ask it, and how much work it accepts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from colligate.library.web import is_loopback as is_loopback

_MEBIBYTE = 1 << 20

DEFAULT_LIBRARY = "default"
"""The name of the library that the server was started with."""

LIBRARIES_SUFFIX = ".libraries"
"""Ends the name of the folder of all other libraries: `papers.libraries/` next to `papers/`."""


@dataclass(frozen=True)
class ServerConfig:
    """The options of `colligate serve`. Sizes are in bytes, times in seconds.

    Every client must send the `token`, which allows everything, or one of those in the file
    `tokens`; with neither, anyone who reaches the port may ask. Pages of `allow_origins` may too.

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

    @property
    def loopback(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_loopback(self.host)
