"""`colligate mcp`: the documents as tools of an MCP client, over standard input and output."""

from __future__ import annotations

from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command

app = typer.Typer(add_completion=False)


@command(app)
async def mcp_command(
    paths: Annotated[
        list[str] | None,
        options.argument(
            "Files, folders and https: addresses to serve. Default: the whole library.", "PATH..."
        ),
    ] = None,
    *,
    models: options.EngineOptions,
    judge: options.Judge = None,
) -> int:
    """Serve documents to an MCP client over standard input and output.

    The client starts this command, gets the tools search, ask, fill_table, read_section and
    list_documents, and ends it. `colligate serve` offers the same over HTTP, at /mcp.

    Examples:
        colligate mcp contracts/
    """
    import asyncio

    from colligate.cli.progress import watch_run
    from colligate.reporting import require_paths
    from colligate.server.mcp import SingleLibrary, make_mcp_server

    if paths:
        require_paths(paths)
    with watch_run() as watcher:
        async with models.engine(judge=judge, on_event=watcher.see) as engine:
            # The client gets its greeting at once; its calls report what fails in the reading.
            service = SingleLibrary(engine, paths or ())
            if paths:
                service.start_reading()
            server = make_mcp_server(service)
            serving = asyncio.create_task(server.run_stdio_async())
            try:
                # Awaited itself, it would after an interrupt wait for one more line of input.
                await asyncio.wait([serving])
                serving.result()
            finally:
                await service.aclose()
    return ANSWERED
