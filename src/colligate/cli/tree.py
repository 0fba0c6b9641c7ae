"""`colligate tree FILE`: the structure a file was read into, and where a question leads in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, NOT_FOUND, command
from colligate.cli.display import note, print_json, print_result, warn
from colligate.errors import UsageError

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class RouteOptions(options.ReadOptions):
    """How the file is read, and the adapter of the router."""

    router_adapter: options.RouterAdapter = None


@command(app)
async def tree_command(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Any file colligate can read.")],
    *,
    route: Annotated[
        str | None,
        typer.Option(
            "--route",
            metavar="QUESTION",
            help="Mark what the strategy rdr2 would read for a question. All options but --json, "
            "--ocr and --pdf need this one.",
            show_default=False,
        ),
    ] = None,
    models: options.EngineOptions,
    reading: RouteOptions,
    run: options.RunOptions,
) -> int:
    """Show the structure of a file: headings, pages, blocks, and how sure it is.

    With --route, show where a question leads in the file: the blocks that a search finds, the
    headings that a model expands, the blocks that it accepts. Exit status 3: none is accepted.
    """
    if route is None:
        _refuse_options_of_route(context)
        return _show_structure(file, run.as_json, reading)
    from colligate.cli.drawing import draw_routes
    from colligate.cli.progress import require_text, watch_run
    from colligate.core.events import Event
    from colligate.export import describe_usage

    require_text(route)
    events: list[Event] = []
    with watch_run(run.trace) as watcher:
        async with models.engine(reading, on_event=watcher.see) as engine:
            limits = run.limits(router_adapter=reading.router_adapter)
            routes = await engine.route(route, [file], on_event=events.append, **limits)
    watcher.warn_rest(routes.warnings)
    if run.as_json:
        print_json({"file": str(file), **routes.to_json()})
    else:
        print_result(draw_routes(routes, events))
        note(describe_usage(routes.usage.to_json(), routes.model))
    return ANSWERED if routes.found else NOT_FOUND


def _refuse_options_of_route(context: typer.Context) -> None:
    """Refuse options that would change nothing."""
    for option in context.command.params:
        source = str(context.get_parameter_source(option.name or ""))
        if option.name not in ("file", "as_json", "ocr", "pdf") and source.endswith("COMMANDLINE"):
            what = f"{option.opts[0]} has no effect here"
            raise UsageError(what, "it needs --route", "add --route QUESTION")


def _show_structure(file: Path, as_json: bool, given: options.ReadOptions) -> int:
    from colligate.cli.drawing import draw_document
    from colligate.documents.document import tree_json
    from colligate.documents.reading import Limits, read_file
    from colligate.documents.reading.pdf.docling import require_reader
    from colligate.library.web import is_address
    from colligate.settings import Settings

    if is_address(file):
        why, hint = "a web address is read only into a library", "see `colligate index`"
        raise UsageError("tree shows a file", why, hint)
    settings = Settings.load()
    reader = given.pdf or (settings.pdf.name if settings.pdf else "")
    require_reader(reader)
    reading = read_file(file, Limits(ocr=settings.ocr_languages(asked=given.ocr), pdf=reader))
    for warning in reading.warnings:
        warn(warning)
    if as_json:
        # Most files hold one document; a file of records holds many.
        print_json(
            {
                "file": str(file),
                "documents": [tree_json(document) for document in reading.documents],
                "warnings": list(reading.warnings),
            }
        )
        return ANSWERED
    for document in reading.documents:
        print_result(draw_document(document))
    return ANSWERED
