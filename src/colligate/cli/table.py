"""`colligate table`: columns, some paths, a spreadsheet in which every cell is a citation."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, NOT_FOUND, command
from colligate.cli.display import make_table, note, print_json, print_result, tell, to_one_line
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.engine import Engine
    from colligate.table import Book, Cell, Column, Layout, Row, Table

app = typer.Typer(add_completion=False)

Columns = Annotated[
    str,
    options.argument(
        "The columns, such as `annual rent: money; ends on: date; status: open|closed`; or a "
        "JSON Schema, or the TOML file that an earlier table was written with.",
        "COLUMNS",
    ),
]


@dataclass(frozen=True)
class TableOptions(options.ReadOptions):
    """What a table has, and where it is written."""

    output: Annotated[
        list[Path] | None,
        options.option(
            "Write the table to FILE, as its ending says: .xlsx, .csv, .json or .md; may be "
            "repeated. Beside the first are kept its columns (.toml) and its finished cells "
            "(.cells.jsonl).",
            options.OUTPUT,
            "--output",
            "-o",
            metavar="FILE",
        ),
    ] = None
    rows: Annotated[
        str,
        options.option(
            'What a row is, if not a document: "each loan".', options.OUTPUT, metavar="TEXT"
        ),
    ] = ""
    dry_run: Annotated[
        bool,
        options.option(
            "Say how many documents, calls and tokens it takes; ask no model.",
            options.LIMITS,
            "--dry-run",
        ),
    ] = False
    review: Annotated[
        bool,
        options.option(
            "Show the doubtful cells one by one, then the empty ones; what you correct is kept.",
            options.OUTPUT,
            "--review",
        ),
    ] = False
    where: options.Where = None
    chunker: options.Chunker = None


@command(app)
async def table_command(
    columns: Columns,
    paths: options.Paths = None,
    *,
    wanted: TableOptions,
    models: options.EngineOptions,
    run: options.RunOptions,
) -> int:
    """Fill a table over files and folders: a row for each document, every cell cited.

    The same command later fills only what is new.

    Exit status: 0 some cells were filled, 3 none, 2 wrong usage, 1 a fault.

    Examples:
        colligate table "tenant; annual rent: money; ends on: date" leases/ -o leases.xlsx
        colligate table leases.toml -o leases.xlsx --review
    """
    from colligate.cli.progress import watch_run
    from colligate.export import describe_usage
    from colligate.table import Book, choose_table_format, parse_layout

    layout = parse_layout(columns)
    layout = replace(
        layout, rows=wanted.rows or layout.rows, sources=tuple(paths or layout.sources)
    )
    files = wanted.output or []
    for file in files:
        choose_table_format(file)
    if wanted.review and not (files and sys.stdin.isatty()):
        raise UsageError("--review needs a terminal and a file", hint="give -o FILE")
    if not wanted.dry_run:
        _keep_layout(columns, layout, files)
    with watch_run(run.trace) as watcher, Book(_beside(files)) as book:
        async with models.engine(wanted) as engine:
            given: Any = {"book": book, "where": wanted.where or [], "on_event": watcher.see}
            if wanted.dry_run:
                documents, calls, tokens = await engine.estimate_table(
                    layout, layout.sources, **given, **run.limits()
                )
                print(f"{documents:,} documents, about {calls:,} calls and {tokens:,} tokens")
                return ANSWERED
            table = await engine.table(layout, layout.sources, **given, **run.limits())
            if wanted.review:
                with watcher.paused():
                    table = await _review(table, book, engine)
    watcher.warn_rest(table.warnings)
    for file in files:
        table.export(file)
    if run.as_json:
        print_json(table.to_json())
    elif not files:
        _show(table)
    filled, of = table.filled
    usage = describe_usage(table.usage.to_json(), table.model)
    note(f"{filled:,} of {of:,} cells of {len(table.rows):,} rows; {usage}")
    for file in files:
        note(f"written to {file}")
    return ANSWERED if filled else NOT_FOUND


def _beside(files: Sequence[Path], ending: str = ".cells.jsonl") -> Path | None:
    return files[0].with_suffix(ending) if files else None


def _keep_layout(given: str, layout: Layout, files: Sequence[Path]) -> None:
    """Write the columns beside the table, unless they come from that file.

    UsageError if another table has its columns there.
    """
    from colligate.export import write_file
    from colligate.table import parse_layout, write_layout

    path = _beside(files, ".toml")
    if path is None or Path(given) == path:
        return
    if path.exists() and parse_layout(str(path)).columns != layout.columns:
        hint = f"give {path} in place of the columns, or another file to write to"
        raise UsageError(f"{path} has other columns", hint=hint)
    write_file(path, write_layout(layout).encode())


def _show(table: Table) -> None:
    names = [column.name for column in table.layout.columns]
    heads = ["document", *(["row"] if table.layout.rows else []), *names]
    rows = [
        [row.title, *([row.name] if table.layout.rows else [])]
        + [_describe(row.cells[name]) for name in names]
        for row in table.rows
    ]
    print_result(make_table(heads, rows))


def _describe(cell: Cell) -> str:
    """Return a cell in one line: its words, its pages, what is doubtful."""
    pages = {f"p. {v.citation['page']}" for v in cell.values if v.citation and v.citation["page"]}
    text = cell.text + (f" ({', '.join(sorted(pages))})" if pages else "")
    return " ".join(filter(None, (text, f"[{cell.doubt or cell.reason}]" if cell.reason else "")))


async def _review(table: Table, book: Book, engine: Engine) -> Table:
    """Show cells to a person, the doubtful ones first; return the table with what is corrected."""
    cells = [(row, column) for row in table.rows for column in table.layout.columns]
    doubtful = [(row, each) for row, each in cells if row.cells[each.name].doubt]
    empty = [(row, each) for row, each in cells if row.cells[each.name].is_empty]
    library, rows = await engine.open_library(), {id(row): row for row in table.rows}
    for row, column in (*doubtful, *empty):
        document = await library.document(row.document)
        cell = await asyncio.to_thread(_ask_about, row, column, document.language)
        if cell is None:
            break
        book.correct(document, table.layout, column, row.name, cell)
        before = rows[id(row)]
        rows[id(row)] = replace(before, cells={**before.cells, column.name: cell})
    return replace(table, rows=tuple(rows[id(row)] for row in table.rows))


def _ask_about(row: Row, column: Column, language: str) -> Cell | None:
    """Return a cell as a person wants it; None to end the review."""
    from colligate.export import describe_place
    from colligate.table import correct_cell

    cell = row.cells[column.name]
    tell(f"\n{to_one_line(row.title)} {to_one_line(row.name)}: {column.name}", "bold")
    for each in cell.values:
        tell(f"  {to_one_line(each.written)}")
        if each.citation:
            tell(f"    “{to_one_line(str(each.citation['quote']))}”", "italic")
            tell(f"    {to_one_line(describe_place(each.citation, with_folder=True))}")
    tell(f"  {to_one_line(cell.doubt or str(cell.reason or ''))}")
    said = input("Enter keeps it, a text replaces it, - empties it, q ends: ").strip()
    if said == "q":
        return None
    return correct_cell(cell, column, "" if said == "-" else said or None, language)
