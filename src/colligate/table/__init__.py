"""A table over documents: a row for each, in which every cell is a citation."""

from colligate.table.book import Book, Cell, CellValue, Reason, Row
from colligate.table.columns import Column, Layout, parse_layout, write_layout
from colligate.table.files import Table, choose_table_format
from colligate.table.filler import TableFiller

__all__ = [
    "Book",
    "Cell",
    "CellValue",
    "Column",
    "Layout",
    "Reason",
    "Row",
    "Table",
    "TableFiller",
    "choose_table_format",
    "parse_layout",
    "write_layout",
]
