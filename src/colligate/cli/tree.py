"""`colligate tree FILE`: what structure a file was read into, and how sure that is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.display import note, one_line, say, say_json, warn
from colligate.cli.failures import ANSWERED, NOT_FOUND
from colligate.errors import UsageError

if TYPE_CHECKING:
    from rich.tree import Tree as Drawing

    from colligate.documents import Document, Node
_BLOCKS = {
    "paragraph": ("paragraph", "paragraphs"),
    "list_item": ("list item", "list items"),
    "table": ("table", "tables"),
    "code": ("code block", "code blocks"),
}


def tree(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Any file colligate can read.")],
    *,
    route: Annotated[
        str | None,
        typer.Option(
            "--route",
            metavar="QUESTION",
            help="Light what the strategy rdr2 would read for a question. All options but --json "
            "are for this alone.",
            show_default=False,
        ),
    ] = None,
    as_json: options.AsJson = False,
    trace: options.Trace = None,
    parameters: options.Set = None,
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    router_adapter: options.RouterAdapter = None,
    config: options.Config = None,
    library: options.LibraryFolder = None,
    wait: options.Wait = 30.0,
    cache: options.Cache = False,
    max_tokens_total: options.MaxTokensTotal = None,
    timeout: options.Timeout = None,
) -> int:
    """Show the structure tree of a file: headings, pages, blocks, and how sure it is.

    With --route, show where a question leads in it: the blocks a search finds, the headings a
    model opens, the blocks it accepts. Exit status 3: it accepted nothing.
    """
    if route is None:
        _refuse_options_of_route(context)
        return _show_structure(file, as_json)
    from colligate.cli.display import usage_line
    from colligate.cli.routed import routes_drawn
    from colligate.cli.watched import hold_to_text, watched
    from colligate.core.events import Event, Listener, Trace
    from colligate.engine import Engine, Routes
    from colligate.session import configure
    from colligate.settings import Settings
    from colligate.strategies.rdr2.method import RDR2

    hold_to_text(route)
    settings = Settings.load(config)
    given = options.given(parameters, router_adapter)
    events: list[Event] = []

    async def routed(question: str, on_event: Listener) -> Routes:
        strategy = configure(RDR2, settings, given, Trace([on_event], keep=False))
        async with Engine(
            model=model,
            worker_model=worker_model,
            scorer=scorer,
            embedder=embedder,
            reranker=reranker,
            library=library,
            settings=settings,
            wait=wait,
            cache=cache,
            on_event=on_event,
        ) as engine:
            return await engine.route(
                question,
                [file],
                strategy=strategy,
                max_tokens_total=max_tokens_total,
                timeout=timeout,
                on_event=events.append,
            )

    question = route
    routes = watched(lambda on_event: routed(question, on_event), trace)
    if as_json:
        say_json({"file": str(file), **routes.to_json()})
    else:
        say(routes_drawn(routes, events))
        note(usage_line(routes.usage, routes.model))
    return ANSWERED if routes.found else NOT_FOUND


def _refuse_options_of_route(context: typer.Context) -> None:
    """Options that would change nothing are a mistake.

    Raises:
        UsageError: one was given.
    """
    for option in context.command.params:
        named = str(context.get_parameter_source(option.name or ""))
        if option.name not in ("file", "as_json") and named.endswith("COMMANDLINE"):
            why = "it is for --route alone"
            raise UsageError(f"{option.opts[0]} does nothing here", why, "add --route QUESTION")


def _show_structure(file: Path, as_json: bool) -> int:
    from colligate.documents.document import tree_json
    from colligate.documents.reading import read_file

    reading = read_file(file)
    for warning in reading.warnings:
        warn(warning)
    if as_json:
        # Most files hold one document; a file of records holds many.
        say_json(
            {
                "file": str(file),
                "documents": [tree_json(document) for document in reading.documents],
                "warnings": list(reading.warnings),
            }
        )
        return ANSWERED
    for document in reading.documents:
        say(drawing(document))
    return ANSWERED


def drawing(document: Document) -> Drawing:
    """A document's headings as a drawing, with what stands under each."""
    from rich.text import Text
    from rich.tree import Tree as Drawing

    from colligate.documents.document import page_number

    structure = document.tree.structure
    size = f"{len(document):,} characters"
    pages = f", {len(document.pages):,} pages" if document.pages else ""
    sure = f"structure: {structure.confidence:.0%} sure, from {structure.basis.value}"
    root = Text.assemble(
        (one_line(document.title), "bold"),
        (f"  {one_line(document.id)}\n{size}{pages}, language {document.language}\n", "dim"),
        sure,
        f" ({one_line(structure.note)})" if structure.note else "",
    )
    drawn = {document.tree.root.id: Drawing(root, guide_style="dim")}
    for section in document.tree.sections:
        line = Text(one_line(section.title) or "(before the first heading)")
        page = page_number(document, section)
        line.append(f"  {'' if page is None else f'page {page}, '}{_contents(document, section)}")
        line.stylize("dim", len(line.plain) - len(line.plain.rpartition("  ")[2]))
        parent = section.parent
        while parent not in drawn:
            parent = document.tree.nodes[parent or 0].parent
        drawn[section.id] = drawn[parent].add(line)
    if not document.tree.sections:
        drawn[document.tree.root.id].add(Text(_contents(document, document.tree.root)))
    return drawn[document.tree.root.id]


def _contents(document: Document, section: Node) -> str:
    """How many blocks stand directly in a section, list items within list items included."""
    counts: Counter[str] = Counter()
    waiting = [n for n in document.tree.children(section) if n.kind.value in _BLOCKS]
    while waiting:
        node = waiting.pop()
        counts[node.kind.value] += 1
        waiting += document.tree.children(node)
    said = [f"{count:,} {_BLOCKS[kind][count != 1]}" for kind in _BLOCKS if (count := counts[kind])]
    return ", ".join(said) or "no text of its own"
