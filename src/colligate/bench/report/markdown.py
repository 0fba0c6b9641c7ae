"""The report as Markdown, for a repository: the same numbers, without the answers to read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from colligate.bench.report.columns import Cell
from colligate.bench.report.numbers import NONE, places_of, said
from colligate.bench.report.report import Report
from colligate.bench.report.tables import Block, Table

_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~$])")


def markdown(report: Report) -> str:
    """The whole text; what documents, models and people wrote is escaped."""
    return "\n\n".join(part for part in _parts(report) if part).rstrip() + "\n"


def _parts(report: Report) -> Iterator[str]:
    suite = report.contents.suite
    yield f"# {plain(suite.title)}"
    yield plain(suite.about)
    for remark in report.remarks:
        yield f"> {plain(remark)}"
    yield _table(
        ("what", "", ""), [[f"**{name}**", plain(v), plain(m)] for name, v, m in report.facts]
    )
    yield "## The table"
    yield _suite_table(report.table)
    yield (
        "Bold: the best of our column. In brackets the 95 % interval, by bootstrap over the "
        "questions. Stars: a paired bootstrap tells it apart from the best, \\* p < .05, "
        "\\*\\* < .01, \\*\\*\\* < .001. Of fewer than six questions there is none of these. What "
        "failed or refused counts as wrong."
    )
    if report.table.models:
        yield "Slanted rows are the papers’ own numbers, of their models and their questions."
        yield "\n".join(f"{n}. {plain(note)}" for n, note in enumerate(report.table.notes, 1))
    if report.difference_numbers:
        yield "## Differences from the best"
        yield _escaped(report.difference_numbers)
    for figure in report.pictures:
        yield f"## {plain(figure.title)}"
        yield plain(figure.note or figure.missing)
        yield _escaped(figure.numbers)
    yield f"## {plain(report.verdicts.title)}"
    yield _escaped(report.verdicts.numbers)
    if report.failures:
        yield "### What failed"
        head = ("what", "strategy", "times", "one of them whole")
        yield _escaped([head, *((k, s, str(n), whole) for s, k, n, whole in report.failures)])
    yield "<details><summary>All measures</summary>"
    for rows in report.measure_tables:
        yield _escaped(rows)
    yield "</details>"
    yield "## Made with"
    for title, rows in report.made_with:
        widest = max(map(len, rows))
        folded = len(rows) > 12
        yield f"<details><summary>{plain(title)}</summary>" if folded else f"### {plain(title)}"
        yield _escaped([[""] * widest, *([*row, *[""] * (widest - len(row))] for row in rows)])
        yield "</details>" if folded else ""


def _suite_table(table: Table) -> str:
    if not table.heads:
        return "No metric was measured."
    names = [
        f"{plain(h.title)}{' ↓' if h.higher is False else ''} (n = {h.n:,})" for h in table.heads
    ]
    body = [row for block in table.blocks for row in _block(block, table)]
    return _table(("", *names), body)


def _block(block: Block, table: Table) -> Iterator[list[str]]:
    if block.ours:
        cells = zip(block.ours.cells, table.heads, strict=True)
        yield [
            plain(block.label),
            *(_cell(cell, places_of(head.scale), head.n) for cell, head in cells),
        ]
    for row in block.printed:
        printed = "as printed" if block.ours else f"{plain(block.label)}, only printed"
        numbers = (
            NONE if cell is None else _printed(*cell, head.printed_places)
            for cell, head in zip(row.cells, table.heads, strict=True)
        )
        yield [f"*{printed}{f' ({plain(row.model)})' if row.model else ''}*", *numbers]


def _printed(value: float, note: int | None, places: int) -> str:
    return f"*{said(value, places)}*" + (f"<sup>{note}</sup>" if note else "")


def _cell(cell: Cell | None, places: int | None, n: int) -> str:
    if cell is None:
        return NONE
    value = said(cell.value, places)
    value = f"**{value}**" if cell.best else value
    stars = cell.stars.replace("*", "\\*")
    interval = f" [{said(cell.low, places)}, {said(cell.high, places)}]"
    interval = interval if cell.low is not None else ""
    return f"{value}{stars}{interval}" + (f" (n = {cell.n:,})" if cell.n != n else "")


def _escaped(rows: Sequence[Sequence[str]]) -> str:
    if not rows:
        return ""
    return _table([plain(cell) for cell in rows[0]], [[plain(c) for c in row] for row in rows[1:]])


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    def line(cells: Sequence[str]) -> str:
        return f"| {' | '.join(cells)} |"

    return "\n".join([line(head), line(["---"] * len(head)), *map(line, rows)])


def plain(text: str) -> str:
    """A text that Markdown shows as it is, in one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()).replace("&", "&amp;"))
