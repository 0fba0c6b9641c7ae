"""A file behind HTTP, read and sought like one on disk."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterator

import httpx2

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
