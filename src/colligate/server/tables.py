"""The finished cells of a library's tables: a book in its folder, opened once and kept open."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from colligate.concurrency import in_thread
from colligate.library.store import CELLS_FILE
from colligate.server.errors import NotHere
from colligate.server.libraries import Libraries
from colligate.server.shapes import Correction, EstimateShape, TableRequest, describe_row
from colligate.table import Book, correct_cell, read_table


class Tables:
    """The books of libraries, by name; the tables of a library share one."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._books: dict[str, Book] = {}
        self._opening = asyncio.Lock()

    async def open(self, library: str) -> Book:
        async with self._opening:
            if library not in self._books:
                path = self._libraries.folder(library) / CELLS_FILE
                self._books[library] = await in_thread(Book, path)
            return self._books[library]

    def close(self, library: str | None = None) -> None:
        """Close the book of a library, or all."""
        for name in [*self._books] if library is None else [library]:
            if book := self._books.pop(name, None):
                book.close()

    async def estimate(self, library: str, request: TableRequest) -> EstimateShape:
        layout = request.layout
        documents, calls, tokens = await self._libraries.engine(library).estimate_table(
            layout, book=await self.open(library), documents=request.documents, where=request.where
        )
        columns = [each.name for each in layout.columns]
        return {"columns": columns, "documents": documents, "calls": calls, "tokens": tokens}

    async def correct(
        self, library: str, shown: dict[str, Any], said: Correction
    ) -> dict[str, Any]:
        """Keep what a person says of a cell, put it into the table shown, and return it.

        NotHere if the table has no such cell.
        """
        table = await in_thread(read_table, shown)
        columns = {each.name: each for each in table.layout.columns}
        rows = {(row.document, row.name): at for at, row in enumerate(table.rows)}
        at, column = rows.get((said.document, said.row)), columns.get(said.column)
        if at is None or column is None:
            raise NotHere("the table has no such cell")
        row = table.rows[at]
        document = await (await self._libraries.open_library(library)).document(row.document)
        cell = correct_cell(row.cells[column.name], column, said.text, document.language)
        book = await self.open(library)
        await in_thread(book.correct, document, table.layout, column, row.name, cell)
        shown["rows"][at] = describe_row(replace(row, cells={**row.cells, column.name: cell}))
        corrected: dict[str, Any] = shown["rows"][at]["cells"][column.name]
        return corrected
