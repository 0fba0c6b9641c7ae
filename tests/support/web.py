"""A small web server on the loopback interface, with pages that a test may change."""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Web:
    """`pages` are what it serves: the media type and the bytes by path, or another status.

    `url` is its address without a slash at the end, `headers` replace its own (an empty one is left
    out), `answers` are the path and status of each answer.
    """

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, str] | int] = {}
        self.headers: dict[str, str] = {}
        self.answers: list[tuple[str, int]] = []
        self.url = ""


@contextmanager
def serve_web(context: ssl.SSLContext | None = None) -> Iterator[Web]:
    web = Web()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = web.pages.get(self.path, 404)
            kind, text = (self.path, "") if isinstance(page, int) else page
            tag = f'"{hashlib.md5(text.encode()).hexdigest()}"'
            status = page if isinstance(page, int) else 200
            if status == 200 and self.headers.get("If-None-Match") == tag:
                status, text = 304, ""
            web.answers.append((self.path, status))
            self.send_response(status)
            stated = {"Content-Type": kind, "Content-Length": str(len(text.encode())), "ETag": tag}
            for name, value in {**stated, **web.headers}.items():
                if value:
                    self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # a client that refuses the certificate

    with Server(("127.0.0.1", 0), Handler) as server:
        if context is not None:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme = "http" if context is None else "https"
        web.url = f"{scheme}://127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield web
        server.shutdown()
