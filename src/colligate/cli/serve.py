"""`colligate serve`: the library behind HTTP, with a page to ask in."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import note, shorten_path, warn
from colligate.cli.sync import find_folders, list_changes, pass_on_once, update, watch
from colligate.errors import ColligateError, LibraryLocked, MissingExtra

if TYPE_CHECKING:
    from colligate.server.state import ServerState

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
    allow_origin: Annotated[
        list[str] | None,
        options.option(
            "Another origin whose pages may ask, such as https://example.org; may be repeated.",
            _SERVER,
            metavar="ORIGIN",
        ),
    ] = None
    allow_model: Annotated[
        list[str] | None,
        options.option(
            "A model that clients may name in a strategy's parameters; may be repeated. The "
            "server loads no other model that a client names.",
            _SERVER,
            metavar="NAME",
        ),
    ] = None
    watch: Annotated[
        bool,
        options.option(
            "Follow the folders of the library: what changes in them is read or removed.",
            options.LIBRARY,
            "--watch",
        ),
    ] = False


@dataclass(frozen=True)
class LimitOptions:
    """How much work the server accepts."""

    runs: Annotated[int, _limit("The most questions answered at once; others wait.", "RUNS")] = 4
    waiting: Annotated[
        int, _limit("The most questions that wait; more are refused.", "WAITING", min=0)
    ] = 64
    max_upload: Annotated[
        int,
        _limit("The largest total size of the files in one request.", "MAX_UPLOAD", metavar="MIB"),
    ] = 512
    max_files: Annotated[int, _limit("The most files in one request.", "MAX_FILES")] = 200
    max_question: Annotated[
        int, _limit("The longest question.", "MAX_QUESTION", metavar="CHARACTERS")
    ] = 8000
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

    The page /api/docs describes the API. Models are opened before the first connection is
    accepted. An interrupt stops the server once the questions under way have their answers.
    """
    from colligate.cli.progress import watch_run

    try:
        from colligate.server.app import listen
    except ImportError as error:
        raise MissingExtra.of(error, "colligate serve needs its extra", "serve") from error
    from colligate.server.auth import check_token, normalize_origin
    from colligate.server.config import ServerConfig, is_loopback
    from colligate.server.tokens import TokenFile

    engine = models.engine(judge=judge, pdf=pdf)
    host, token = listen_at.host, listen_at.token
    named = None if listen_at.tokens is None else TokenFile(listen_at.tokens)
    if named is not None:
        named.read()  # an error now, and not at the first request
    elif token is None and not is_loopback(host):
        token = secrets.token_urlsafe(32)
        note(f"token: {token}")
    config = ServerConfig(
        host=host,
        port=listen_at.port,
        token=None if token is None else check_token(token),
        tokens=None if named is None else named.path,
        allow_origins=tuple(normalize_origin(each) for each in listen_at.allow_origin or ()),
        allow_models=tuple(listen_at.allow_model or ()),
        settings=engine.named,
        upload_bytes=limits.max_upload * _MEBIBYTE,
        upload_files=limits.max_files,
        question_characters=limits.max_question,
        runs=limits.runs,
        waiting=limits.waiting,
        grace=limits.grace,
    )
    with ExitStack() as display:
        watcher = display.enter_context(watch_run())

        def report_ready(url: str) -> None:
            display.close()
            note(f"colligate is at {url}")

        await listen(
            config,
            lambda: engine,
            on_opening=watcher.see,
            on_ready=report_ready,
            beside=_follow_folders if listen_at.watch else nullcontext,
        )
    return ANSWERED


@asynccontextmanager
async def _follow_folders(state: ServerState) -> AsyncIterator[None]:
    """Keep the server's own library up to date with its folders as long as the context lasts."""
    from colligate.core.events import Event, Noted
    from colligate.core.run import refuse
    from colligate.server.config import DEFAULT_LIBRARY

    engine = state.libraries.engine(DEFAULT_LIBRARY)
    library = await engine.open_library()
    folders = await find_folders(library)
    said: set[str] = set()

    def see(event: Event) -> None:
        if isinstance(event, Noted) and event.warning:
            warn(event.text)

    async def sync() -> None:
        before = {info.id for info in await library.documents()}
        try:
            ingested = await update(engine, (), pass_on_once(see, said), refuse)
        except LibraryLocked:
            raise
        except ColligateError as error:  # it is tried again when something changes
            return warn(str(error))
        finally:
            gone = before - {info.id for info in await library.documents()}
            await state.runs.forget_documents(DEFAULT_LIBRARY, gone)
        for what, file in list_changes(ingested):
            note(f"library: {what} {shorten_path(file)}")

    async def follow() -> None:
        try:
            note(f"watching {', '.join(map(str, folders))}; Ctrl-C ends it")
            await watch(library.path, folders, sync)
        except Exception as error:  # the server continues without following them
            warn(f"the folders are no longer followed: {error}")

    following = asyncio.create_task(follow())
    try:
        yield
    finally:
        following.cancel()
        await asyncio.wait([following])
