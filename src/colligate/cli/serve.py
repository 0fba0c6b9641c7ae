"""`colligate serve`: the library behind HTTP, with a page to ask in."""

from __future__ import annotations

from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.failures import ANSWERED
from colligate.cli.terminal import note

_SERVER = "Server"


def serve(
    *,
    host: Annotated[
        str,
        typer.Option(
            envvar="COLLIGATE_HOST",
            help="The address to listen at; beyond this machine, clients need a token.",
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
    """Serve a library: a page to ask in, and an HTTP API (see /api/docs)."""
    from colligate.cli.running import run
    from colligate.engine import Engine
    from colligate.serving.listening import listen
    from colligate.serving.settings import Serving
    from colligate.settings import Settings

    settings = Settings.load(config)
    serving = Serving(host=host, port=port)

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

    run(listen(serving, make_engine, on_ready=lambda url: note(f"colligate is at {url}")))
    return ANSWERED
