"""`colligate index` and `colligate library`: what is kept, and letting it go again."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from colligate.cli import options
from colligate.cli.display import counted, note, one_line, say, say_json, visible
from colligate.cli.failures import ANSWERED, FAULT, run
from colligate.errors import LibraryLocked, UnknownDocument, UsageError

if TYPE_CHECKING:
    from colligate.documents import Document
    from colligate.library.ingest import Ingested
    from colligate.library.library import AsyncLibrary
    from colligate.library.sources import DocumentInfo
T = TypeVar("T")

_MOST_NAMED = 5

app = typer.Typer(help="What the library holds: list, show, remove, verify.")


def index(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Files, folders and globs to add.", show_default=False
        ),
    ],
    library: options.LibraryFolder = None,
    embedder: options.Embedder = None,
    config: options.Config = None,
    workers: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="Processes that read files. Default: half the cores.",
            rich_help_panel=options.LIBRARY,
            show_default=False,
        ),
    ] = None,
    wait: options.Wait = 30.0,
    as_json: options.AsJson = False,
) -> int:
    """Add files to the library, so that they can be asked about at once.

    Files that have not changed are left as they are. Interrupted, it goes on where it was.
    """
    from colligate.cli.progress import watching
    from colligate.cli.remote import holding
    from colligate.engine import Engine
    from colligate.settings import Settings

    processes = _processes(workers)
    settings = Settings.load(config)

    async def add() -> tuple[Ingested, AsyncLibrary]:
        async with Engine(
            library=library, embedder=embedder, settings=settings, wait=wait
        ) as engine:
            opened = await engine.open_library()
            if server := await holding(opened.path):
                raise LibraryLocked(
                    f"cannot index into the library {opened.path}",
                    f"the server at {server.url} holds it",
                    "send the files there, or stop it",
                )
            return await engine.add(paths, workers=processes, on_event=watcher.see), opened

    with watching(sys.stderr) as watcher:
        ingested, into = run(add())
    counts = {
        "added": len(ingested.added),
        "updated": len(ingested.updated),
        "unchanged": len(ingested.unchanged),
        "failed": len(ingested.failed),
        "passages": ingested.passages,
    }
    if as_json:
        failures = [str(error) for _, error in ingested.failed]
        ids = list(ingested.document_ids)
        say_json(
            {"library": str(into.path), **counts, "documents": ids, "failures": failures}
            | {"warnings": list(ingested.warnings)}
        )
        return ANSWERED
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if name != "passages")
    say(f"files: {said}; passages embedded: {ingested.passages:,}")
    note(f"library: {into.path}")
    return ANSWERED


@app.command("list")
def list_documents(
    library: options.LibraryFolder = None,
    embedder: options.Embedder = None,
    config: options.Config = None,
    wait: options.Wait = 30.0,
    as_json: options.AsJson = False,
) -> int:
    """List the documents."""

    async def documents(opened: AsyncLibrary) -> tuple[list[Any], str]:
        return list(await opened.documents()), str(opened.path)

    infos, path = _with_library(library, embedder, config, wait, documents)
    if as_json:
        say_json([dataclasses.asdict(info) for info in infos])
        return ANSWERED
    from colligate.cli.display import table

    headings = ["document", "title", "pages", "passages", "language", "source"]
    rows = [
        (
            info.id,
            info.title,
            f"{info.pages:,}" if info.pages else "",
            f"{info.passages:,}",
            info.language,
            info.source,
        )
        for info in infos
    ]
    if rows:
        say(table(headings, rows))
    note(f"{counted(len(rows), 'document')} in {path}")
    return ANSWERED


@app.command("show")
def show_document(
    document: Annotated[
        str,
        typer.Argument(
            metavar="DOCUMENT",
            help="A document's id from `library list`, its beginning, or the document's file.",
        ),
    ],
    text: Annotated[
        bool,
        typer.Option("--text", help="Print the text that spans refer to, and nothing else."),
    ] = False,
    library: options.LibraryFolder = None,
    embedder: options.Embedder = None,
    config: options.Config = None,
    wait: options.Wait = 30.0,
    as_json: options.AsJson = False,
) -> int:
    """Show one document: its facts and its headings, or with --text its text."""
    if text and as_json:
        raise UsageError("--text and --json exclude each other", hint="give one of them")

    async def one(opened: AsyncLibrary) -> Document:
        return await opened.document(_meant(document, await opened.documents()))

    found = _with_library(library, embedder, config, wait, one)
    if text:
        _print_text(found.text)
        return ANSWERED
    from colligate.cli.tree import drawing
    from colligate.documents.document import tree_json

    if as_json:
        facts = {"source": found.source, "media_type": found.media_type, "digest": found.digest}
        metadata = {"metadata": dict(found.metadata), "warnings": list(found.warnings)}
        say_json({**tree_json(found), **facts, **metadata})
        return ANSWERED
    say(drawing(found))
    note(f"from {found.source}")
    return ANSWERED


@app.command("remove")
def remove_documents(
    documents: Annotated[
        list[str],
        typer.Argument(
            metavar="DOCUMENT...",
            help="Ids from `library list`, or files or folders that were added.",
            show_default=False,
        ),
    ],
    library: options.LibraryFolder = None,
    embedder: options.Embedder = None,
    config: options.Config = None,
    wait: options.Wait = 30.0,
) -> int:
    """Remove documents; nothing of their text stays in the library.

    Runs that a server kept and that looked at them go as well.
    """
    from colligate.cli.remote import holding

    async def remove(opened: AsyncLibrary) -> list[str]:
        if server := await holding(opened.path):
            return await server.remove(_ids_of(documents, await opened.documents()))
        return await opened.remove(documents)

    removed = _with_library(library, embedder, config, wait, remove)
    for name in removed:
        say(f"removed {one_line(name)}")
    if not removed:
        note("no document removed: other files hold the same text")
    return ANSWERED


@app.command("verify")
def verify_library(
    repair: Annotated[bool, typer.Option("--repair", help="Mend what is found.")] = False,
    library: options.LibraryFolder = None,
    embedder: options.Embedder = None,
    config: options.Config = None,
    wait: options.Wait = 30.0,
    as_json: options.AsJson = False,
) -> int:
    """Check that documents and passages agree.

    Exit status: 0 if nothing is wrong or all was repaired, 1 if something is wrong.
    """

    async def verify(opened: AsyncLibrary) -> tuple[list[str], bool]:
        problems = await opened.verify(repair=repair)
        whole = not problems or (repair and not await opened.verify())
        return problems, whole

    problems, whole = _with_library(library, embedder, config, wait, verify)
    if as_json:
        say_json({"whole": whole, "repaired": repair and whole, "problems": problems})
    else:
        for problem in problems:
            say(one_line(problem))
        say(("the library is whole" if not problems else "repaired") if whole else "not whole")
    return ANSWERED if whole else FAULT


def _with_library(
    folder: Path | None,
    embedder: str | None,
    config: Path | None,
    wait: float,
    work: Callable[[AsyncLibrary], Awaitable[T]],
) -> T:
    from colligate.engine import Engine
    from colligate.settings import Settings

    settings = Settings.load(config)
    named = settings.library
    if folder is None and named is not None and named.source == str(settings.file):
        note(f"library: {named.name} ({named.source})")

    async def opened() -> T:
        async with Engine(
            library=folder, embedder=embedder, settings=settings, wait=wait
        ) as engine:
            return await work(await engine.open_library())

    return run(opened())


def _meant(given: str, documents: Sequence[DocumentInfo]) -> str:
    """The id of the one document that is meant by an id, the beginning of one, or a file.

    Raises:
        UnknownDocument: if there is none.
        UsageError: if there are several.
    """
    ids = [info.id for info in documents]
    if given in ids:
        return given
    meant = [
        info.id for info in documents if Path(info.source).absolute() == Path(given).absolute()
    ]
    meant = meant or [name for name in ids if given and name.startswith(given)]
    if not meant:
        why = "the library holds no document of this name"
        raise UnknownDocument(f"cannot show {given}", why, "see `colligate library list`")
    if len(meant) > 1:
        several = ", ".join(meant[:_MOST_NAMED]) + (", ..." if len(meant) > _MOST_NAMED else "")
        raise UsageError(f"{given} may be {counted(len(meant), 'document')}", several, "name one")
    return meant[0]


def _ids_of(given: Sequence[str], documents: Sequence[DocumentInfo]) -> list[str]:
    """The ids of documents named by id, or by a file or folder that they come from.

    Raises:
        UnknownDocument: one of them names nothing.
    """
    from colligate.library.catalogue import resolve_path

    ids = {info.id for info in documents}
    found: dict[str, None] = {}
    for each in given:
        place = resolve_path(each)
        held = [
            info.id
            for info in documents
            if place == Path(info.source) or place in Path(info.source).parents
        ]
        if each not in ids and not held:
            why = "the library has no document and no file of this name"
            raise UnknownDocument(f"cannot remove {each}", why, "see `colligate library list`")
        found.update(dict.fromkeys([each] if each in ids else held))
    return list(found)


def _processes(workers: str | None) -> int | None:
    if workers is None:
        return None
    if workers == "ray":
        raise UsageError(
            "--workers ray is not in this version",
            "files are read by processes of this machine",
            "give a number of processes",
        )
    if not workers.isdecimal() or int(workers) < 1:
        raise UsageError(f"--workers {workers} is no number of processes", hint="give 1 or more")
    return int(workers)


def _print_text(text: str) -> None:
    """Exactly the text, character for character; a terminal is shown control characters."""
    if sys.stdout.isatty():
        text = visible(text)
    elif hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(newline="")
    sys.stdout.write(text)
