"""A small web server on the loopback interface, with pages that a test may change."""

import hashlib
import ssl
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


class Loopback:
    """An HTTP server in a thread of this process; `address` is its URL without a slash at the end.

    Clients may leave at any time.
    """

    def __init__(
        self, handler: type[BaseHTTPRequestHandler], context: ssl.SSLContext | None = None
    ) -> None:
        handler.log_message = lambda *_: None  # type: ignore[method-assign]
        self._http = _Forgiving(("127.0.0.1", 0), handler)
        if context is not None:
            self._http.socket = context.wrap_socket(self._http.socket, server_side=True)
        scheme = "http" if context is None else "https"
        self.address = f"{scheme}://127.0.0.1:{self._http.server_port}"
        # A short poll: shutting down waits for it.
        self._thread = Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Forgiving(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


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

    with closing(Loopback(Handler, context)) as server:
        web.url = server.address
        yield web
