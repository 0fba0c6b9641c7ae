"""Who may ask: the bearer token, and protection against other web pages in the same browser."""

from __future__ import annotations

import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate.errors import UsageError
from colligate.server.config import ServerConfig, is_loopback
from colligate.server.errors import problem, problem_response

# Everything else needs the token: the page asks for it, the documentation holds no user's data.
_OPEN = frozenset(
    "/ /index.html /healthz /favicon.ico /favicon.svg /api/docs /api/openapi.json".split()
)
_ASSETS = "/assets/"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
        " object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class Guard:
    """ASGI middleware before all others: refuse forbidden requests, and set security headers.

    A server on loopback answers only to names of this machine and of allowed origins, so that a
    web page whose own name was made to point here (DNS rebinding) reads nothing. Requests that
    change something are refused to pages of other origins, with a token or without.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig) -> None:
        self._app = app
        self._config = config
        self._token = None if config.token is None else config.token.encode()
        origins = [_host_name(_netloc(origin) or "") for origin in config.allow_origins]
        self._names = {name for name in (config.host, *origins) if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no path here speaks another protocol
            return await send({"type": "websocket.close", "code": 1008})

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith(_ASSETS):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await (self._refusal(scope) or self._app)(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._config.loopback and not self._is_own_name(host):
            detail = "this server answers only to names of its own machine"
            return _refuse(scope, 421, detail, f"use http://{self._config.host}")
        if scope["method"] not in _SAFE_METHODS and self._is_foreign(headers, host):
            detail = "the request comes from a page of another origin"
            return _refuse(scope, 403, detail, "--allow-origin names pages that may ask")
        if self._token is None or scope["path"] in _OPEN or scope["path"].startswith(_ASSETS):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        matches = secrets.compare_digest(given.strip().encode(), self._token)
        if scheme.lower() == "bearer" and matches:
            return None
        hint = "send Authorization: Bearer TOKEN"
        refused = _refuse(scope, 401, "the token is missing or wrong", hint)
        refused.headers["WWW-Authenticate"] = 'Bearer realm="colligate"'
        return refused

    def _is_own_name(self, host: str) -> bool:
        name = _host_name(host)
        return name in self._names or is_loopback(name)

    def _is_foreign(self, headers: Headers, host: str) -> bool:
        """Return whether a browser sent the request for a page of another origin."""
        origin = headers.get("origin")
        if origin is not None:
            return _netloc(origin) != host and origin not in self._config.allow_origins
        return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _refuse(scope: Scope, status: int, detail: str, hint: str) -> Response:
    return problem_response(problem(status, detail, hint=hint), path=scope["path"])


def _host_name(host: str) -> str:
    """Return the name in a Host header, without its port.

    >>> _host_name("localhost:8420"), _host_name("[::1]:8420")
    ('localhost', '::1')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    """Return name and port of an origin, or None."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


# The options --token and --allow-origin.

_MIN_TOKEN = 16  # characters


def make_token() -> str:
    """Return a token that nobody can guess: 32 random bytes."""
    return secrets.token_urlsafe(32)


def check_token(token: str) -> str:
    """Return a token that a person chose; an error if it is short or no header can carry it."""
    if len(token) < _MIN_TOKEN:
        why = f"it has {len(token)} characters and needs at least {_MIN_TOKEN}"
        hint = "python -c 'import secrets; print(secrets.token_urlsafe())' makes one"
        raise UsageError("the token is too short", why, hint)
    if not all("!" <= character <= "~" for character in token):
        raise UsageError("the token cannot be sent", "it must be ASCII without blanks")
    return token


def normalize_origin(origin: str) -> str:
    """Return an origin as browsers send it: scheme, name and port, without a final slash."""
    bare = origin.rstrip("/")
    netloc = _netloc(bare)
    if not netloc or bare.lower() not in (f"http://{netloc}".lower(), f"https://{netloc}".lower()):
        raise UsageError(f"{origin!r} is not an origin", "", "write it as https://example.org")
    return bare.lower()
