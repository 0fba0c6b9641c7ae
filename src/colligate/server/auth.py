"""Who may ask: bearer tokens and their rights, and protection against pages in the same browser."""

from __future__ import annotations

import ipaddress
import re
import secrets
import time
from urllib.parse import SplitResult, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from colligate.errors import UsageError
from colligate.server.audit import AUDIT, USE, Audit, Use
from colligate.server.config import ServerConfig, is_loopback
from colligate.server.errors import Forbidden, Refused, error_response
from colligate.server.metrics import Metrics, route_of
from colligate.server.tokens import CALLER, NamedToken, Right, TokenFile

# Everything else needs the token: the page asks for it, the documentation holds no user's data.
_OPEN = frozenset("/ /index.html /healthz /favicon.ico /favicon.svg /api/openapi.json".split())
_ASSETS = "/assets/"
_HUNG_UP = 499  # the status that is counted for a client that did
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
        ("POST", "/api/libraries/[^/]+/(ask|table(/estimate)?)", {Right.ASK}),
        ("POST", "/v1/chat/completions|/api/chat", {Right.ASK}),
        # Of each run, a token that is not an admin's sees its own.
        ("GET|HEAD", "/api/runs/.*|/api/libraries/[^/]+/(runs|feedback)", {Right.READ, Right.ASK}),
        ("DELETE|PUT|POST", "/api/runs/.*", {Right.ASK}),
        ("GET|HEAD", "/api/jobs/.*", {Right.READ, Right.WRITE}),
        ("DELETE", "/api/libraries/[^/]+", {Right.ADMIN}),
        (".*", "/metrics", {Right.ADMIN}),
        ("POST", "/v1/embeddings|/api/embed", {Right.READ}),
        ("GET|HEAD", "/api/about|/api/libraries|/api/tags|/api/version", _ANY),
        ("POST", "/api/show", _ANY),
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
    """ASGI middleware around all routes: it refuses, reports errors, adds headers, counts, audits.

    A server on loopback answers only to names of this machine and of allowed origins, so that a
    web page whose own name was made to point here (DNS rebinding) reads nothing. Requests that
    change something are refused to pages of other origins, with a token or without.
    """

    def __init__(self, app: ASGIApp, config: ServerConfig, metrics: Metrics, audit: Audit) -> None:
        self._app = app
        self._config = config
        self._metrics = metrics
        self._token = None if config.token is None else config.token.encode()
        self._tokens = None if config.tokens is None else TokenFile(config.tokens)
        self._audit = audit
        self._user_header = (config.proxy_user_header or "").lower().encode()
        origins = {_parse(each).hostname for each in config.allow_origins}
        self._names = {config.host, *origins} - {None}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":  # no path here speaks another protocol
            return await send({"type": "websocket.close", "code": 1008})
        status = None
        began = time.perf_counter()

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                self._finish_headers(scope, message)
            await send(message)

        before, use_before = CALLER.set(None), USE.set(use := Use())
        try:
            user = self._take_user(scope)
            self._check_names(scope)
            if not self._is_open(scope["path"]):
                self._admit(scope, user)
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if status is not None:  # the connection is closed instead
                raise
            await error_response(error, scope["path"])(scope, receive, send_with_headers)
        finally:
            if not _is_public(scope["path"]):
                self._audit.write(scope, route_of(scope), status or _HUNG_UP, use)
            CALLER.reset(before)
            USE.reset(use_before)
            self._metrics.count_request(scope, status or _HUNG_UP, time.perf_counter() - began)

    def _finish_headers(self, scope: Scope, message: Message) -> None:
        headers = MutableHeaders(scope=message)
        for name, value in _HEADERS.items():
            headers.setdefault(name, value)
        if not scope["path"].startswith(_ASSETS):
            headers.setdefault("Cache-Control", "no-store")

    def _check_names(self, scope: Scope) -> None:
        """Refuse what no token makes acceptable: a foreign name of this host, a foreign page."""
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        name = _parse(f"//{host}").hostname or ""
        if self._config.loopback and not (name in self._names or is_loopback(name)):
            detail = "this server answers only to names of its own machine"
            raise Refused(421, detail, hint=f"use http://{self._config.host}")
        if scope["method"] not in _SAFE_METHODS and self._is_foreign(headers, host):
            detail = "the request comes from a page of another origin"
            raise Refused(403, detail, hint="--allow-origin names pages that may ask")

    def _is_foreign(self, headers: Headers, host: str) -> bool:
        """Return whether a browser sent the request for a page of another origin."""
        origin = headers.get("origin")
        if origin is not None:
            netloc = _parse(origin).netloc
            return (not netloc or netloc != host) and origin not in self._config.allow_origins
        return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")

    def _is_open(self, path: str) -> bool:
        return (self._token is None and self._tokens is None) or _is_public(path)

    def _take_user(self, scope: Scope) -> str | None:
        """Return whom a trusted proxy names; nobody after this sees the header, whoever sent it."""
        names = [value for name, value in scope["headers"] if name == self._user_header]
        scope["headers"] = [each for each in scope["headers"] if each[0] != self._user_header]
        try:
            peer = ipaddress.ip_address((scope.get("client") or ("",))[0])
            peer = getattr(peer, "ipv4_mapped", None) or peer
        except ValueError:  # a socket without an address
            return None
        if not names or not any(peer in network for network in self._config.trusted_proxies):
            return None
        return names[0].decode("latin-1") if len(names) == 1 else ""

    def _admit(self, scope: Scope, user: str | None) -> None:
        """Refuse a request without a token that allows it; set `CALLER` if it is a named one.

        Whom a trusted proxy names has the rights of the token of this name, whatever else is sent.
        """
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        if user is None and self._token and secrets.compare_digest(given.encode(), self._token):
            return
        caller = self._find(given, user)
        if caller is None and user is not None:
            hint = "whoever runs the server can make one: colligate token make NAME --no-secret"
            raise Refused(401, f"there is no token named {user!r}, which the proxy sent", hint=hint)
        if caller is None:
            challenge = {"WWW-Authenticate": 'Bearer realm="colligate"'}
            hint = "send Authorization: Bearer TOKEN"
            raise Refused(401, "the token is missing or wrong", challenge, hint=hint)
        CALLER.set(caller)
        require(*needed_rights(scope["method"], scope["path"]))

    def _find(self, given: str, user: str | None) -> NamedToken | None:
        try:
            if user is not None:
                return self._tokens.named(user) if self._tokens else None
            return self._tokens.find(given) if self._tokens and given else None
        except UsageError as error:  # changed while the server runs
            AUDIT.error("no named token is accepted: %s", error)
            return None


def _is_public(path: str) -> bool:
    return path in _OPEN or path.startswith(_ASSETS)


def require(*rights: Right) -> None:
    """Raise an error if the named token of this request has none of these rights."""
    caller = CALLER.get()
    if caller is not None and not caller.may(rights):
        names = " or ".join(right for right in Right if right in rights)
        hint = "whoever runs the server can make one: colligate token make NAME --right RIGHT"
        raise Forbidden(f"the token {caller.name} lacks the right {names}", "", hint)


def _parse(address: str) -> SplitResult:
    """Return the parts of an address, which are empty if it is none."""
    try:
        return urlsplit(address)
    except ValueError:
        return urlsplit("")


_MIN_TOKEN = 16  # characters


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
    bare = origin.rstrip("/").lower()
    netloc = _parse(bare).netloc
    if not netloc or bare not in (f"http://{netloc}", f"https://{netloc}"):
        raise UsageError(f"{origin!r} is not an origin", "", "write it as https://example.org")
    return bare
