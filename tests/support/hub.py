"""A real HTTP server on the loopback interface that plays hub and package index."""

import hashlib
import io
import json
import zipfile
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import unquote

from support.web import Loopback

# Two parts that do not compress, so that a cut falls inside the data.
PARTS = [hashlib.shake_256(bytes([i])).digest(300_000) for i in range(2)]
CONTENT = b"".join(PARTS)
HUB_PATH = "/Owner/Model-GGUF/resolve/main/tiny.gguf"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(Loopback):
    """`.files` by path; `.cut_after` ends the next answers early; `.requests` what was asked.

    `.requests` holds (path, Range) of each GET. `.pages` are index pages by project, in place of
    those made from `.files`. The hub's repositories are made of them too, at the commit COMMIT;
    `.stated` are SHA-256 that it states and the files do not have, `.answers` what it says of
    repositories, `.token` is needed to read them, and `.store` is a server to which it leads on.
    """

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.json_index = True
        self.ranges = True
        self.pages: dict[str, tuple[bytes, str]] = {}
        self.cut_after: list[int] = []
        self.requests: list[tuple[str, str | None]] = []
        self.agents: set[str] = set()
        self.stated: dict[str, str] = {}
        self.answers: dict[str, bytes] = {}
        self.token = ""
        self.store = ""
        self.tokens_seen: set[str | None] = set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server._reply(self)

            do_HEAD = do_GET

        super().__init__(Handler)
        self.url = self.address

    def add_wheels(self, *contents: bytes, version: str = "1.0", tag: str = "any") -> None:
        """Add a wheel `tiny_part1`, `tiny_part2`, ... for each content, for the platform `tag`."""
        for i, content in enumerate(contents, 1):
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as wheel:
                wheel.writestr("ballast.bin", bytes(100_000))
                wheel.writestr(f"tiny_part{i}/part{i:02d}.bin", content)
            self.files[f"/wheels/tiny_part{i}-{version}-py3-none-{tag}.whl"] = archive.getvalue()

    def ranges_asked(self, path: str) -> list[str | None]:
        """Return the Range of each GET of a path."""
        return [wanted for asked, wanted in self.requests if asked == path]

    def _reply(self, request: BaseHTTPRequestHandler) -> None:
        path, wanted = request.path, request.headers.get("Range")
        self.agents.add(request.headers.get("User-Agent", ""))
        key = request.headers.get("Authorization")
        self.tokens_seen.add(key)
        if request.command == "GET":
            self.requests.append((path, wanted))
        body, kind = self.files.get(path), "application/octet-stream"
        if path.startswith("/simple/"):
            project = path.split("/")[2]
            body, kind = self.pages.get(project) or self._index_page(project)
        if path.startswith("/api/models/"):
            body, kind = self._describe(path.removeprefix("/api/models/")), "application/json"
        if self.token and key != f"Bearer {self.token}":
            return _answer(request, 403 if key else 401)
        if body is None:
            return _answer(request, 404)
        linked: dict[str, Any] = {}
        if "/resolve/" in path:
            digest = self.stated.get(path, hashlib.sha256(body).hexdigest())
            linked = {"X-Linked-Etag": f'"{digest}"', "X-Linked-Size": len(body)}
            if self.store:
                return _answer(request, 302, **linked, Location=self.store + path)
        start, end = 0, len(body)
        whole = end
        partly = bool(wanted and self.ranges)
        if wanted and partly:
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            start, end = int(first), min(whole, int(last) + 1 if last else whole)
        body = body[start:end]
        request.send_response(206 if partly else 200)
        headers: dict[str, Any] = {"Content-Type": kind, "Content-Length": len(body), **linked}
        if partly:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{whole}"
        for name, value in headers.items():
            request.send_header(name, str(value))
        request.end_headers()
        if request.command == "HEAD":
            return
        if self.cut_after and len(body) > self.cut_after[0]:
            body = body[: self.cut_after.pop(0)]
            request.close_connection = True
        try:
            request.wfile.write(body)
        except (BrokenPipeError, ConnectionResetError):
            request.close_connection = True

    def _describe(self, repository: str) -> bytes | None:
        """Return what the hub's API says of a repository that has files."""
        start = f"/{repository}/resolve/{COMMIT}/"
        names = [unquote(path.removeprefix(start)) for path in self.files if path.startswith(start)]
        about = {
            "sha": COMMIT,
            "tags": ["gguf", "license:apache-2.0"],
            "siblings": [{"rfilename": name} for name in names],
        }
        return self.answers.get(repository) or (json.dumps(about).encode() if names else None)

    def _index_page(self, project: str) -> tuple[bytes | None, str]:
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


def _answer(request: BaseHTTPRequestHandler, status: int, **headers: Any) -> None:
    request.send_response(status)
    for name, value in {**headers, "Content-Length": 0}.items():
        request.send_header(name, str(value))
    request.end_headers()
