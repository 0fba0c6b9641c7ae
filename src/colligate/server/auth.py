"""Who may ask: the bearer token, and what keeps other web pages from using a browser's reach."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate.errors import UsageError
from colligate.server.errors import problem, problem_response
from colligate.server.settings import Serving, is_loopback

# All else needs the token: the page asks for it, and the documentation holds nothing of anyone's.
_OPEN = frozenset({"/", "/index.html", "/healthz", "/favicon.ico", "/favicon.svg"})
_OPEN_API = frozenset({"/api/docs", "/api/openapi.json"})
_ASSETS = "/assets/"
_SHORTEST = 16
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})

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

Call = Callable[[Scope, Receive, Send], Awaitable[None]]


def new_token() -> str:
    """A token nobody can guess: 32 random bytes."""
    return secrets.token_urlsafe(32)


def checked_token(token: str) -> str:
    """A token given by a person, if a header can carry it and nobody will guess it.

    Raises:
        UsageError: it cannot be used.
    """
    if len(token) < _SHORTEST:
        why = f"it has {len(token)} characters and needs at least {_SHORTEST}"
        raise UsageError(
            "the token is too short",
            why,
            "python -c 'import secrets; print(secrets.token_urlsafe())' makes one",
        )
    if not all("!" <= character <= "~" for character in token):
        raise UsageError("the token cannot be sent", "only ASCII without blanks can be")
    return token


def checked_origin(origin: str) -> str:
    """An origin as browsers send it: scheme, name and port, without a slash behind.

    Raises:
        UsageError: it is none, or stands for any page there is.
    """
    bare = origin.rstrip("/")
    netloc = _netloc(bare)
    if not netloc or bare.lower() not in (f"http://{netloc}".lower(), f"https://{netloc}".lower()):
        what = f"{origin!r} is no origin of pages"
        raise UsageError(what, "", "write it as https://example.org")
    return bare.lower()


class Guard:
    """ASGI middleware before all others: refuses what may not pass, and sets headers.

    A server on loopback answers only to names of this machine and of allowed origins, so that a
    web page whose own name was made to point here (DNS rebinding) reads nothing. Requests that
    change something are refused to pages of other origins, whether or not a token is set. Errors
    under /v1 have OpenAI's form.
    """

    def __init__(self, app: ASGIApp, serving: Serving) -> None:
        self._app = app
        self._serving = serving
        self._token = None if serving.token is None else serving.token.encode()
        origins = [_name(_netloc(origin) or "") for origin in serving.allow_origins]
        self._names = {name for name in (serving.host, *origins) if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no path here speaks anything else
            return await send({"type": "websocket.close", "code": 1008})

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith(_ASSETS):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refusal(scope)
        await (refused or self._app)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._serving.loopback and not self._is_ours(host):
            detail = "this server answers only to names of its own machine"
            return _refused(scope, 421, detail, f"ask for http://{self._serving.host}")
        if scope["method"] not in _SAFE and self._is_foreign(headers, host):
            detail = "the request comes from a page of another origin"
            return _refused(scope, 403, detail, "--allow-origin names pages that may ask")
        if self._token is None or _is_open(scope):
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        right = secrets.compare_digest(given.strip().encode(), self._token)
        if scheme.lower() == "bearer" and right:
            return None
        refused = _refused(
            scope, 401, "the token is missing or wrong", "send Authorization: Bearer TOKEN"
        )
        refused.headers["WWW-Authenticate"] = 'Bearer realm="colligate"'
        return refused

    def _is_ours(self, host: str) -> bool:
        name = _name(host)
        return name in self._names or is_loopback(name)

    def _is_foreign(self, headers: Headers, host: str) -> bool:
        """Whether a browser sent it for a page of another origin."""
        origin = headers.get("origin")
        if origin is not None:
            return _netloc(origin) != host and origin not in self._serving.allow_origins
        return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _is_open(scope: Scope) -> bool:
    path = scope["path"]
    return path in _OPEN or path in _OPEN_API or path.startswith(_ASSETS)


def _name(host: str) -> str:
    """The name in a Host header, without its port.

    >>> _name("localhost:8420"), _name("[::1]:8420")
    ('localhost', '::1')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _netloc(origin: str) -> str | None:
    """Name and port of an origin, None where it has none or is no address at all."""
    try:
        return urlsplit(origin).netloc or None
    except ValueError:
        return None


def _refused(scope: Scope, status: int, detail: str, hint: str) -> Response:
    return problem_response(problem(status, detail, hint=hint), path=scope["path"])
