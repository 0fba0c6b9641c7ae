"""`colligate serve`: the library behind HTTP, with a page to ask in."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.display import note
from colligate.cli.failures import ANSWERED

_SERVER = "Server"
_MEBIBYTE = 1 << 20


def serve(
    *,
    host: Annotated[
        str,
        typer.Option(
            envvar="COLLIGATE_HOST",
            help="The address to listen at. Beyond this machine every client needs a token.",
            rich_help_panel=_SERVER,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option(
            envvar="COLLIGATE_PORT",
            min=0,
            max=65535,
            help="The port; 0 takes a free one.",
            rich_help_panel=_SERVER,
        ),
    ] = 8420,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="COLLIGATE_TOKEN",
            help="What clients must send as a bearer token. Beyond this machine one is made and "
            "shown if none is given. The variable keeps it out of the list of processes.",
            rich_help_panel=_SERVER,
            show_default=False,
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN",
            help="A page of another origin that may ask, as https://example.org; as often as you "
            "like.",
            rich_help_panel=_SERVER,
            show_default=False,
        ),
    ] = None,
    allow_model: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A model that questions may name in a strategy's parameters; as often as you "
            "like. The server loads no other that a client names.",
            rich_help_panel=_SERVER,
            show_default=False,
        ),
    ] = None,
    runs: Annotated[
        int,
        typer.Option(
            envvar="COLLIGATE_RUNS",
            min=1,
            help="The most questions answered at once; others wait.",
            rich_help_panel=options.LIMITS,
        ),
    ] = 4,
    waiting: Annotated[
        int,
        typer.Option(
            envvar="COLLIGATE_WAITING",
            min=0,
            help="The most questions that wait; more are refused.",
            rich_help_panel=options.LIMITS,
        ),
    ] = 64,
    max_upload: Annotated[
        int,
        typer.Option(
            envvar="COLLIGATE_MAX_UPLOAD",
            metavar="MIB",
            min=1,
            help="The most that one request may bring in files.",
            rich_help_panel=options.LIMITS,
        ),
    ] = 512,
    max_files: Annotated[
        int,
        typer.Option(
            envvar="COLLIGATE_MAX_FILES",
            min=1,
            help="The most files in one request.",
            rich_help_panel=options.LIMITS,
        ),
    ] = 200,
    max_question: Annotated[
        int,
        typer.Option(
            envvar="COLLIGATE_MAX_QUESTION",
            metavar="CHARACTERS",
            min=1,
            help="The longest question.",
            rich_help_panel=options.LIMITS,
        ),
    ] = 8000,
    grace: Annotated[
        float,
        typer.Option(
            envvar="COLLIGATE_GRACE",
            metavar="SECONDS",
            min=0.0,
            max=86_400.0,
            help="What questions under way are given to end when the server is told to stop.",
            rich_help_panel=options.LIMITS,
        ),
    ] = 20.0,
    library: options.LibraryFolder = None,
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: options.Judge = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    config: options.Config = None,
    wait: options.Wait = 30.0,
    cache: options.Cache = False,
) -> int:
    """Serve a library: a page to ask in, and an HTTP API (the page /api/docs lists it).

    Models are opened before the first connection is taken. An interrupt stops the server once
    the questions under way have their answers.
    """
    from colligate.cli.failures import run
    from colligate.cli.progress import watching
    from colligate.engine import Engine
    from colligate.settings import Settings

    require_extra()
    from colligate.server.app import listen
    from colligate.server.auth import check_token, make_token, normalize_origin
    from colligate.server.config import ServerConfig, is_loopback

    settings = Settings.load(config)
    if token is None and not is_loopback(host):
        token = make_token()
        note(f"token: {token}")
    server_config = ServerConfig(
        host=host,
        port=port,
        token=None if token is None else check_token(token),
        allow_origins=tuple(normalize_origin(each) for each in allow_origin or ()),
        allow_models=tuple(allow_model or ()),
        settings=settings,
        upload_bytes=max_upload * _MEBIBYTE,
        upload_files=max_files,
        question_characters=max_question,
        runs=runs,
        waiting=waiting,
        grace=grace,
    )

    def make_engine() -> Engine:
        return Engine(
            model=model,
            worker_model=worker_model,
            scorer=scorer,
            judge=judge,
            embedder=embedder,
            reranker=reranker,
            library=library,
            settings=settings,
            wait=wait,
            cache=cache,
        )

    with ExitStack() as opening:
        watcher = opening.enter_context(watching(sys.stderr))

        def ready(url: str) -> None:
            opening.close()
            note(f"colligate is at {url}")

        run(listen(server_config, make_engine, on_opening=watcher.see, on_ready=ready))
    return ANSWERED


def require_extra() -> None:
    """Hold this installation to the extra `serve`.

    Raises:
        MissingExtra: a package of it is not installed.
    """
    from importlib import import_module

    from colligate.errors import MissingExtra

    for package in ("fastapi", "uvicorn", "sse_starlette", "python_multipart", "prometheus_client"):
        try:
            import_module(package)
        except ImportError as error:
            raise MissingExtra(
                "colligate serve needs more than is installed",
                f"{error.name or package} is missing",
                "pip install 'colligate[serve]'",
            ) from error
