"""`colligate mcp`: the documents as tools of an MCP client, over standard input and output."""

from __future__ import annotations

import asyncio
import sys
from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.failures import ANSWERED, run


def mcp(
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="Files, folders and globs to serve; without any, the whole library.",
            show_default=False,
        ),
    ] = None,
    *,
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: options.Judge = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    config: options.Config = None,
    library: options.LibraryFolder = None,
    wait: options.Wait = 30.0,
    cache: options.Cache = False,
) -> int:
    """Serve search, ask, read_section and list_documents to an MCP client that starts this.

    It ends when the client does. `colligate serve` offers the same over HTTP, at /mcp.
    """
    from colligate.cli.progress import watching
    from colligate.engine import Engine
    from colligate.server.mcp import SingleLibrary, make_mcp_server
    from colligate.session import require_paths
    from colligate.settings import Settings

    settings = Settings.load(config)
    if paths:
        require_paths(paths)

    async def serve() -> None:
        async with Engine(
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
            on_event=watcher.see,
        ) as engine:
            # The client is greeted at once; its calls wait for what is still being indexed, and
            # say what is wrong with it.
            adding = asyncio.create_task(engine.add(paths)) if paths else None
            server = make_mcp_server(SingleLibrary(engine, paths or ()))
            serving = asyncio.create_task(server.run_stdio_async())
            try:
                # Not awaited itself: interrupted, it would wait for one more line of input.
                await asyncio.wait([serving])
                serving.result()
            finally:
                if adding is not None:
                    adding.cancel()
                    await asyncio.gather(adding, return_exceptions=True)

    with watching(sys.stderr) as watcher:
        run(serve())
    return ANSWERED
