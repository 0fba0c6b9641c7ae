"""Download one file: what breaks off is continued, and its SHA-256 must be the expected one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import httpx2

from colligate.errors import WeightsUnavailable

OnBytes = Callable[[int], None]
Read = Callable[[int], Iterator[bytes]]
"""Yields the bytes of a file from a position on, or raises SourceFailed."""


class SourceFailed(Exception):
    """A source of a file cannot be reached, or does not have the pinned bytes."""


ATTEMPTS = 5
IDENTITY = {"Accept-Encoding": "identity"}  # a packed answer has other positions


def fetch(unfinished: Path, size: int, sha256: str, read: Read, on_bytes: OnBytes) -> None:
    """Append what `read` yields to `unfinished` until it is exactly the pinned file.

    A download that breaks off is continued where it broke, later and from another source too. What
    an earlier call left may be damaged: then all is read once more. SourceFailed if the source
    cannot be reached, or sends other bytes.
    """
    left = _size_of(unfinished)  # by an earlier call
    failures, answered = 0, False
    while (start := _size_of(unfinished)) != size or hash_file(unfinished) != sha256:
        if start >= size:
            unfinished.unlink()
            if not left:
                raise SourceFailed("it sent other bytes than those pinned")
            left = 0
            continue
        try:
            _append(unfinished, size, read(start), on_bytes)
            failures += 1  # it ended early
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            got_some = _size_of(unfinished) > start
            answered |= got_some
            failures = 1 if got_some else failures + 1
            nobody = isinstance(error, httpx2.TimeoutException | httpx2.ConnectError)
            unanswered = nobody and not answered
            if unanswered or not isinstance(error, httpx2.TransportError) or failures == ATTEMPTS:
                raise SourceFailed(describe(error)) from None
            time.sleep(0.1 * 2**failures)
        if failures == ATTEMPTS:
            raise SourceFailed(f"it sends fewer than the {size} bytes that are pinned")


def _append(unfinished: Path, size: int, pieces: Iterator[bytes], on_bytes: OnBytes) -> None:
    for piece in pieces:
        with unfinished.open("ab") as out:
            out.write(piece)
            written = out.tell()
        if written > size:
            raise SourceFailed(f"it sends more than the {size} bytes that are pinned")
        on_bytes(written)


def _size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def read_url(
    url: str, start: int, seconds: float = 60.0, key: Mapping[str, str] = MappingProxyType({})
) -> Iterator[bytes]:
    """Yield the bytes of the file behind `url` from `start` on; wait so long for each answer.

    `key` are headers for that address alone, not for one that it leads on to.

    A server without Range is read from the beginning, and the bytes before `start` are discarded.
    """
    headers = {**key, **IDENTITY} | ({"Range": f"bytes={start}-"} if start else {})
    with open_client(seconds) as client, client.stream("GET", url, headers=headers) as response:
        response.raise_for_status()
        skip = start if response.status_code == httpx2.codes.OK else 0
        for piece in response.iter_raw():
            if len(piece) > skip:
                yield piece[skip:]
            skip = max(0, skip - len(piece))


def open_client(seconds: float = 60.0) -> httpx2.Client:
    """Return a client; the proxies are those of the environment."""
    timeout = httpx2.Timeout(seconds, connect=5)
    agent = {"User-Agent": "colligate"}
    try:
        return httpx2.Client(follow_redirects=True, timeout=timeout, headers=agent)
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        what = "nothing can be downloaded through this proxy"
        hint = "set HTTPS_PROXY, HTTP_PROXY and ALL_PROXY to http:// addresses, or to nothing"
        raise WeightsUnavailable(what, str(error), hint) from None


def describe(error: Exception) -> str:
    """Describe a failed request in a few words. Only the host: an address may hold a password."""
    if isinstance(error, httpx2.HTTPStatusError):
        return f"{error.request.url.host} answered {error.response.status_code}"
    if isinstance(error, httpx2.RequestError):
        return f"{error.request.url.host} cannot be reached ({error or type(error).__name__})"
    return str(error)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file; reads every byte."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
