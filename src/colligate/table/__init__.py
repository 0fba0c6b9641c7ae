"""A table over documents: a row for each, in which every cell is a citation."""

from colligate.table.book import Book, Cell, CellValue, Reason, Row, correct_cell
from colligate.table.columns import Column, Layout, parse_columns, parse_layout, write_layout
from colligate.table.files import TABLE_FORMATS, Table, choose_table_format, read_table
from colligate.table.filler import TableFiller

__all__ = [
    "TABLE_FORMATS",
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
    "correct_cell",
    "parse_columns",
    "parse_layout",
    "read_table",
    "write_layout",
]
