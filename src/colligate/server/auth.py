"""Who may ask: bearer tokens and their rights, and protection against pages in the same browser."""

from __future__ import annotations

import logging
import math
import re
import secrets
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate.errors import UsageError
from colligate.server.config import ServerConfig, is_loopback
from colligate.server.errors import Forbidden, problem, problem_of, problem_response
from colligate.server.tokens import CALLER, NamedToken, Right, TokenFile

USES = logging.getLogger("colligate.tokens")
"""Each request that a named token allows or that is refused to it: name, method, path, status."""

# Everything else needs the token: the page asks for it, the documentation holds no user's data.
_OPEN = frozenset(
    "/ /index.html /healthz /favicon.ico /favicon.svg /api/docs /api/openapi.json".split()
)
_ASSETS = "/assets/"
_SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'self';"
        " frame-ancestors 'none'; object-src 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


# The rights of which a request needs one: the first line that fits its method and path counts.
_ANY = frozenset(Right)
_RIGHTS = tuple(
    (re.compile(methods), re.compile(path, re.DOTALL), frozenset(rights))
    for methods, path, rights in (
        ("POST", "/api/libraries/[^/]+/ask|/v1/chat/completions", {Right.ASK}),
        # Of each run, a token that is not an admin's sees its own.
        ("GET|HEAD", "/api/runs/.*|/api/libraries/[^/]+/runs", {Right.READ, Right.ASK}),
        ("DELETE|POST", "/api/runs/.*", {Right.ASK}),
        ("GET|HEAD", "/api/jobs/.*", {Right.READ, Right.WRITE}),
        ("DELETE", "/api/libraries/[^/]+", {Right.ADMIN}),
        (".*", "/metrics", {Right.ADMIN}),
        ("GET|HEAD", "/api/about|/api/libraries", _ANY),
        ("GET|HEAD", "/v1/models(/.*)?", _ANY),
        ("POST", "/mcp", {Right.READ, Right.ASK}),  # each tool needs its own
        ("GET|HEAD|OPTIONS", ".*", {Right.READ}),
        (".*", ".*", {Right.WRITE}),
    )
)


def needed_rights(method: str, path: str) -> frozenset[Right]:
    """Return the rights of which a request needs one."""
    return next(
        rights
        for methods, paths, rights in _RIGHTS
        if methods.fullmatch(method) and paths.fullmatch(path)
    )


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
        self._tokens = None if config.tokens is None else TokenFile(config.tokens)
        origins = [_host_name(_netloc(origin) or "") for origin in config.allow_origins]
        self._names = {name for name in (config.host, *origins) if name}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no path here speaks another protocol
            return await send({"type": "websocket.close", "code": 1008})

        caller: NamedToken | None = None

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                if caller is not None:
                    what = (caller.name, scope["method"], scope["path"], message["status"])
                    USES.info("%s %s %r %d", *what)
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if not scope["path"].startswith(_ASSETS):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        refused = self._refusal(scope)
        if refused is None and not self._is_open(scope["path"]):
            caller, refused = self._identify(scope)
        before = CALLER.set(caller)
        try:
            if caller is not None and refused is None:
                try:
                    require(*needed_rights(scope["method"], scope["path"]))
                except Forbidden as error:
                    refused = problem_response(problem_of(error), path=scope["path"])
            await (refused or self._app)(scope, receive, send_with_headers)
        finally:
            CALLER.reset(before)

    def _refusal(self, scope: Scope) -> Response | None:
        """Return the response to a request that no token makes acceptable."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._config.loopback and not self._is_own_name(host):
            detail = "this server answers only to names of its own machine"
            return _refuse(scope, 421, detail, f"use http://{self._config.host}")
        if scope["method"] not in _SAFE_METHODS and self._is_foreign(headers, host):
            detail = "the request comes from a page of another origin"
            return _refuse(scope, 403, detail, "--allow-origin names pages that may ask")
        return None

    def _is_open(self, path: str) -> bool:
        without_tokens = self._token is None and self._tokens is None
        return without_tokens or path in _OPEN or path.startswith(_ASSETS)

    def _identify(self, scope: Scope) -> tuple[NamedToken | None, Response | None]:
        """Return the named token of a request, if any, and the response if it is refused."""
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        given, caller = given.strip(), None
        if scheme.lower() == "bearer":
            if self._token and secrets.compare_digest(given.encode(), self._token):
                return None, None
            caller = None if self._tokens is None else self._find(self._tokens, given)
        if caller is None or self._tokens is None:
            hint = "send Authorization: Bearer TOKEN"
            refused = _refuse(scope, 401, "the token is missing or wrong", hint)
            refused.headers["WWW-Authenticate"] = 'Bearer realm="colligate"'
            return None, refused
        if seconds := self._tokens.wait(caller):
            detail = f"the token {caller.name} allows {caller.per_minute:,} requests a minute"
            refused = _refuse(scope, 429, detail, "ask again later")
            refused.headers["Retry-After"] = str(math.ceil(seconds))
            return caller, refused
        return caller, None

    def _find(self, tokens: TokenFile, given: str) -> NamedToken | None:
        try:
            return tokens.find(given)
        except UsageError as error:  # changed while the server runs
            USES.error("no named token is accepted: %s", error)
            return None

    def _is_own_name(self, host: str) -> bool:
        name = _host_name(host)
        return name in self._names or is_loopback(name)

    def _is_foreign(self, headers: Headers, host: str) -> bool:
        """Return whether a browser sent the request for a page of another origin."""
        origin = headers.get("origin")
        if origin is not None:
            return _netloc(origin) != host and origin not in self._config.allow_origins
        return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def require(*rights: Right) -> None:
    """Raise an error if the named token of this request has none of these rights."""
    caller = CALLER.get()
    if caller is not None and not caller.may(rights):
        names = " or ".join(right for right in Right if right in rights)
        hint = "whoever runs the server can make one: colligate token make NAME --right RIGHT"
        raise Forbidden(f"the token {caller.name} lacks the right {names}", "", hint)


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
