"""A file behind HTTP reads like one on disk, in whatever pieces it comes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator

import httpx2

from colligate.models.weights import RemoteFile

CONTENT = bytes(range(256)) * 300


def served(content: bytes, piece: int) -> httpx2.Client:
    """A client whose every answer comes in pieces of that many bytes."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        start = 0
        if wanted := request.headers.get("Range"):
            first = wanted.removeprefix("bytes=").rstrip("-")
            start = max(0, len(content) + int(first)) if first.startswith("-") else int(first)

        def pieces() -> Iterator[bytes]:
            for at in range(start, len(content), piece):
                yield content[at : at + piece]

        headers = {"Content-Length": str(len(content) - start)}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        return httpx2.Response(206 if wanted else 200, headers=headers, content=pieces())

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def test_a_read_is_as_long_as_asked() -> None:
    with served(CONTENT, 7) as client, RemoteFile(client, "http://h/f") as remote:
        assert remote.read(30) == CONTENT[:30]
        remote.seek(1000)
        assert remote.read(30) == CONTENT[1000:1030]
        remote.seek(-20, io.SEEK_END)
        assert remote.read(30) == CONTENT[-20:]
        assert remote.read(30) == b""
        remote.seek(0)
        assert remote.read() == CONTENT


def test_an_archive_that_comes_in_crumbs() -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ballast", bytes(100_000))
        archive.writestr("wanted", CONTENT)
    with served(packed.getvalue(), 11) as client, RemoteFile(client, "http://h/f") as remote:
        assert zipfile.ZipFile(remote).read("wanted") == CONTENT
