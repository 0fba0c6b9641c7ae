"""`colligate library`: list, show, remove and verify documents; erase, snapshot, restore."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, command
from colligate.cli.display import (
    escape_controls,
    make_table,
    note,
    print_json,
    print_result,
    to_one_line,
)
from colligate.errors import UsageError

app = typer.Typer(help="List, show, remove, verify documents; erase, snapshot, restore a library.")


@command(app, "list")
async def library_list_command(
    *, where: options.LibraryOptions, as_json: options.AsJson = False
) -> int:
    """List the documents.

    Examples:
        colligate library list --library papers.library
    """
    from colligate.core.events import pluralize

    async with where.open() as library:
        infos = await library.documents()
    if as_json:
        print_json([dataclasses.asdict(info) for info in infos])
        return ANSWERED
    columns = ["id", "title", "pages", "passages", "language", "source"]
    rows = [[str(getattr(info, column) or "") for column in columns] for info in infos]
    if rows:
        print_result(make_table(columns, rows))
    note(f"{pluralize(len(rows), 'document')} in {library.uri}")
    return ANSWERED


@command(app, "show")
async def library_show_command(
    document: Annotated[
        str,
        options.argument(
            "A document's id from `library list`, the start of an id, its file or its title.",
            "DOCUMENT",
        ),
    ],
    *,
    text: Annotated[
        bool, typer.Option("--text", help="Print the text that spans refer to, and nothing else.")
    ] = False,
    where: options.LibraryOptions,
    as_json: options.AsJson = False,
) -> int:
    """Show one document: its properties and headings, or with --text its text.

    Examples:
        colligate library show papers/first.pdf
        colligate library show papers/first.pdf --text
    """
    if text and as_json:
        raise UsageError("--text and --json exclude each other", hint="give one of them")
    from colligate.library.sources import find_document

    async with where.open() as library:
        found = await library.document(find_document(document, await library.documents()))
    if text:
        _print_text(found.text)
        return ANSWERED
    from colligate.cli.tree import draw_document
    from colligate.documents.document import tree_json

    if as_json:
        properties = {
            "source": found.source,
            "media_type": found.media_type,
            "digest": found.digest,
            "metadata": dict(found.metadata),
            "warnings": list(found.warnings),
        }
        print_json({**tree_json(found), **properties})
        return ANSWERED
    print_result(draw_document(found))
    note(f"from {found.source}")
    return ANSWERED


def _print_text(text: str) -> None:
    """Print exactly the text, character for character; in a terminal, escape its controls."""
    if sys.stdout.isatty():
        text = escape_controls(text)
    elif hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(newline="")
    sys.stdout.write(text)


@command(app, "remove")
async def library_remove_command(
    documents: Annotated[
        list[str],
        options.argument(
            "Ids from `library list`, or files, folders or addresses that were added.",
            "DOCUMENT...",
        ),
    ],
    *,
    where: options.LibraryOptions,
) -> int:
    """Remove documents; nothing of their text stays in the library.

    The runs that a server kept and that read these documents are removed as well. At s3:// the
    documents are gone at once, and `library erase` erases their text from older versions.

    Examples:
        colligate library remove papers/old/
    """
    from colligate.library.store import find_bucket

    async with where.open() as library:
        removed = await library.remove(documents)
    for name in removed:
        print_result(f"removed {to_one_line(name)}")
    if not removed:
        note("no document removed: other files have the same text")
    elif snapshots := await library.snapshots():
        note(f"these snapshots may still have their text: {', '.join(snapshots)}")
    elif find_bucket(library.uri):
        note("older versions still have their text: `colligate library erase` erases it")
    return ANSWERED


@command(app, "erase")
async def library_erase_command(
    *,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            help="Erase even if another process is recorded as writing; only if it was killed.",
        ),
    ] = False,
    where: options.LibraryOptions,
) -> int:
    """Erase what older versions of a library at s3:// still hold of removed documents.

    No other process may write meanwhile. In a folder, `library remove` has done it.

    Exit status: 0 nothing is left, 1 these files may hold something.

    Examples:
        colligate library erase --library s3://bucket/papers
    """
    async with where.open() as library:
        left = await library.erase(force=force)
    for file in left:
        print_result(to_one_line(file))
    if not left:
        print_result("erased: nothing of removed documents is left")
    return FAULT if left else ANSWERED


@command(app, "snapshot")
async def library_snapshot_command(
    name: Annotated[
        str | None, options.argument("A new name; without one, list them.", "NAME")
    ] = None,
    *,
    delete: Annotated[bool, typer.Option("--delete", help="Delete the snapshot.")] = False,
    where: options.LibraryOptions,
) -> int:
    """Keep a library on Lance tables as it is now, for `library restore`.

    It keeps the text of documents that are removed later, and the disk space of what changes.

    Examples:
        colligate library snapshot spring --library s3://bucket/papers
        colligate library snapshot --library s3://bucket/papers
    """
    if delete and name is None:
        raise UsageError("--delete needs a NAME", hint="`colligate library snapshot` lists them")
    async with where.open() as library:
        if name is None:
            for each in await library.snapshots():
                print_result(each)
            return ANSWERED
        await (library.delete_snapshot if delete else library.take_snapshot)(name)
    print_result(f"{'deleted' if delete else 'kept as'} {name}")
    return ANSWERED


@command(app, "restore")
async def library_restore_command(
    name: Annotated[str, options.argument("A snapshot.", "NAME")], *, where: options.LibraryOptions
) -> int:
    """Go back to a snapshot: what was added or removed since is undone.

    No other process may write meanwhile.

    Examples:
        colligate library restore spring --library s3://bucket/papers
    """
    from colligate.core.events import pluralize

    async with where.open() as library:
        await library.restore(name)
        count = len(await library.documents())
    print_result(f"restored {name}: {pluralize(count, 'document')} in {library.uri}")
    return ANSWERED


@command(app, "verify")
async def library_verify_command(
    *,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what is wrong.")] = False,
    where: options.LibraryOptions,
    as_json: options.AsJson = False,
) -> int:
    """Check that documents and passages agree.

    Exit status: 0 nothing is wrong or everything was repaired, 1 something is wrong.

    Examples:
        colligate library verify --repair
    """
    async with where.open() as library:
        problems = await library.verify(repair=repair)
        whole = not problems or (repair and not await library.verify())
    if as_json:
        print_json({"whole": whole, "repaired": repair and whole, "problems": problems})
        return ANSWERED if whole else FAULT
    for problem in problems:
        print_result(to_one_line(problem))
    if whole:
        print_result("repaired" if problems else "the library is whole")
    else:
        print_result("not whole" if repair else "not whole; --repair repairs it")
    return ANSWERED if whole else FAULT
