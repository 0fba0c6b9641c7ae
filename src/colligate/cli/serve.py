"""`colligate serve`: the library behind HTTP, with a page to ask in."""

from __future__ import annotations

import secrets
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import note, tell
from colligate.errors import MissingExtra

app = typer.Typer(add_completion=False)

_SERVER = "Server"
_MEBIBYTE = 1 << 20


def _option(help: str, variable: str, panel: str = _SERVER, **more: Any) -> Any:
    """Return an option that the variable COLLIGATE_... sets too."""
    more = {"default": True, **more}
    return options.option(help, panel, envvar=f"COLLIGATE_{variable}", **more)


_limit = partial(_option, panel=options.LIMITS, min=1)


@dataclass(frozen=True)
class ListenOptions:
    """Where the server listens, and who may ask."""

    host: Annotated[
        str,
        _option(
            "The address to listen at. With one that other machines can reach, every client needs "
            "a token.",
            "HOST",
        ),
    ] = "127.0.0.1"
    port: Annotated[int, _option("The port; 0 takes a free one.", "PORT", min=0, max=65535)] = 8420
    token: Annotated[
        str | None,
        _option(
            "What clients must send as a bearer token. If other machines can reach the address, "
            "the default is a new token, which is shown. The variable keeps it out of the list of "
            "processes.",
            "TOKEN",
            default=False,
        ),
    ] = None
    tokens: Annotated[
        str | None,
        _option(
            "A file of named tokens with their rights, which `colligate token` makes.",
            "TOKENS",
            metavar="FILE",
            default=False,
        ),
    ] = None
    proxy_user_header: Annotated[
        str | None,
        _option(
            "The header in which a proxy that identifies people names who asks, such as "
            "X-Forwarded-User: one of --tokens.",
            "PROXY_USER_HEADER",
            metavar="NAME",
            default=False,
        ),
    ] = None
    trusted_proxy: Annotated[
        list[str] | None,
        options.option(
            "The address or network of that proxy; may be repeated. From any other the header is "
            "ignored.",
            _SERVER,
            metavar="ADDRESS",
        ),
    ] = None
    audit: Annotated[
        str | None,
        _option(
            "A file that gets a line for each request: who, what, which documents.",
            "AUDIT",
            metavar="FILE",
            default=False,
        ),
    ] = None
    audit_questions: Annotated[
        bool, options.option("Let these lines have the questions.", _SERVER, "--audit-questions")
    ] = False
    allow_origin: Annotated[
        list[str] | None,
        options.option(
            "Another origin whose pages may ask, such as https://example.org; may be repeated.",
            _SERVER,
            metavar="ORIGIN",
        ),
    ] = None


@dataclass(frozen=True)
class LimitOptions:
    """How much work the server accepts."""

    runs: Annotated[int, _limit("The most questions answered at once; others wait.", "RUNS")] = 4
    max_upload: Annotated[
        int,
        _limit("The largest total size of the files in one request.", "MAX_UPLOAD", metavar="MIB"),
    ] = 512
    grace: Annotated[
        float,
        _limit(
            "How long questions under way may take to end after the server is stopped.",
            "GRACE",
            metavar="SECONDS",
            min=0.0,
            max=86_400.0,
        ),
    ] = 20.0


@command(app)
async def serve_command(
    *,
    listen_at: ListenOptions,
    limits: LimitOptions,
    pdf: options.Pdf = None,
    models: options.EngineOptions,
    judge: options.Judge = None,
) -> int:
    """Serve a library over HTTP: a page to ask in, and an API.

    Models are opened before the first connection is accepted. An interrupt stops the server once
    the questions under way have their answers.

    Examples:
        colligate serve --library papers.library
        colligate serve --host 0.0.0.0 --tokens tokens.json
    """
    from colligate.cli.progress import watch_run

    try:
        from colligate.server.app import listen
    except ImportError as error:
        raise MissingExtra.of(error, "colligate serve needs its extra", "serve") from error
    from colligate.server.auth import check_token, normalize_origin
    from colligate.server.config import ServerConfig, is_loopback, parse_network
    from colligate.server.tokens import TokenFile

    engine = models.engine(judge=judge, pdf=pdf)
    host, token = listen_at.host, listen_at.token
    named = None if listen_at.tokens is None else TokenFile(listen_at.tokens)
    if named is not None:
        named.read()  # an error now, and not at the first request
    elif token is None and not is_loopback(host):
        token = secrets.token_urlsafe(32)
        tell(f"token: {token}")
    config = ServerConfig(
        host=host,
        port=listen_at.port,
        token=None if token is None else check_token(token),
        tokens=None if named is None else named.path,
        proxy_user_header=listen_at.proxy_user_header,
        trusted_proxies=tuple(map(parse_network, listen_at.trusted_proxy or ())),
        audit=None if listen_at.audit is None else Path(listen_at.audit),
        audit_questions=listen_at.audit_questions,
        allow_origins=tuple(normalize_origin(each) for each in listen_at.allow_origin or ()),
        upload_bytes=limits.max_upload * _MEBIBYTE,
        runs=limits.runs,
        grace=limits.grace,
    )
    with ExitStack() as display:
        watcher = display.enter_context(watch_run())

        def report_ready(url: str) -> None:
            display.close()
            note(f"colligate is at {url}")

        await listen(config, lambda: engine, on_opening=watcher.see, on_ready=report_ready)
    return ANSWERED
