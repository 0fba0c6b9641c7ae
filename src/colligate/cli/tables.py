"""Rows in columns: a rich table in a terminal, aligned plain text elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from colligate.cli.terminal import one_line


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """A table without lines; cells are shown whole, wrapped where the terminal is narrow."""
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        made.add_column(heading, overflow="fold")
    for row in rows:
        made.add_row(*(Text(one_line(cell)) for cell in row))
    return made
