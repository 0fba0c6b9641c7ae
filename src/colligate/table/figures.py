"""Figures of tables, for a reader that reads one passage at a time: the row, then its column.

Rows are found by their labels. A row counts the more, the more rows of the document have its
figure: a total is repeated in several tables, a part of it is not, and a figure that one row alone
has is not taken. Of several periods beside each other the latest is taken that the table's head
names, else the first.
"""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from colligate.core.run import Run
from colligate.documents import Document, Kind, Span

_ALIKE = 0.87  # likeness of labels that say the same, from which a row is sure (decision 28)
_SAME = 0.98  # the label itself, but for its ending
_CHANCE = 2  # digits of figures that rows have in common by chance
_LONGEST_LABEL = 120  # characters; more is prose
_MOST_LABELS = 5_000  # of a document; a long annual report has about 900

_FIGURE = re.compile(r"[$€£¥]?\s?\(?[$€£¥]?\s?\d(?:[\d.,]*\d)?\)?%?(?=[\s|]|$)")
# In text: two or more figures beside each other, as of a row that was read as prose.
_ROW = re.compile(rf"(?:\s*{_FIGURE.pattern}){{2,}}")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_MARK = re.compile(r"\(\d\)")  # of a footnote


@dataclass(frozen=True)
class Figure:
    """A row of a table, its figure as printed, and how many rows of the document have that figure.

    `likeness` is the cosine of its label with what is looked up.
    """

    row: Span
    written: str
    told: int
    likeness: float

    @property
    def weight(self) -> float:
        """What it counts among other rows."""
        return self.likeness * math.log2(1 + self.told)


@dataclass(frozen=True)
class Rows:
    """The rows of a document that have figures, by label, and the vectors of the labels."""

    by_label: Mapping[str, Sequence[tuple[Span, str]]]
    vectors: NDArray[np.float32]  # [labels, dimension]


async def read_rows(document: Document, run: Run) -> Rows:
    """Return the rows of a document's tables, once for all that is looked up in them.

    A sheet of thousands of records has no statements to look up, and its rows are not read.

    Raises:
        MissingCapability: the run has no embedder.
        ModelError: the embedder fails.
    """

    def read() -> dict[str, list[tuple[Span, str]]]:
        rows: dict[str, list[tuple[Span, str]]] = {}
        for label, row in _iter_rows(document):
            if written := _latest(document, row):
                rows.setdefault(label.casefold(), []).append((row, written))
        return rows

    rows = await asyncio.to_thread(read)
    rows = rows if len(rows) <= _MOST_LABELS else {}
    return Rows(rows, await run.embed([*rows]) if rows else np.empty((0, 0), np.float32))


async def find_figure(wanted: str, rows: Rows, run: Run, *, money: bool = False) -> Figure | None:
    """Return the row that most likely has a figure; None if no label says what is looked up.

    An amount of `money` is no percentage.

    Raises:
        ModelError: the embedder fails.
    """
    if not rows.by_label:
        return None
    told = Counter(_digits(written) for own in rows.by_label.values() for _, written in own)
    likeness = rows.vectors @ (await run.embed([wanted]))[0]
    # Beside the label itself a label that is only like it says something else.
    least = _SAME if likeness.max() >= _SAME else _ALIKE
    figures = []
    for like, own in zip(likeness.tolist(), rows.by_label.values(), strict=True):
        for row, written in own if like >= least else ():
            digits = _digits(written)
            share = money and written.endswith("%")
            if told[digits] > 1 and len(digits) > _CHANCE and not share:
                figures.append(Figure(row, written, told[digits], like))
    return max(figures, key=lambda each: each.weight, default=None)


def _iter_rows(document: Document) -> Iterator[tuple[str, Span]]:
    """Yield the label and the span of each row with figures, also of rows that are read as text."""
    start = 0
    for line in document.text.splitlines(keepends=True):
        row = document.trim(start, start + len(line))
        start += len(line)
        if row is None:
            continue
        text = document.slice(row)
        if document.tree.node_at(row.start).kind is Kind.TABLE:
            if label := text.strip("| ").partition("|")[0].strip():
                yield label, row
            continue
        last = 0
        for found in _ROW.finditer(text):
            label = text[last : found.start()].strip()
            part = document.trim(row.start + last, row.start + found.end())
            last = found.end()
            if part is not None and 0 < len(label) <= _LONGEST_LABEL:
                yield label, part


def _latest(document: Document, row: Span) -> str:
    """Return the figure of a row for the latest year in the head of its table, else the first."""
    text = document.slice(row)
    cells = text.strip("| ").partition("|")[2] or text
    found = (each[0].strip() for each in _FIGURE.finditer(cells))
    figures = [each for each in found if not (_YEAR.fullmatch(each) or _MARK.fullmatch(each))]
    years = _YEAR.findall(document.table_head(row))
    if figures and len(years) == len(figures):
        return figures[years.index(max(years))]
    return figures[0] if figures else ""


def _digits(written: str) -> str:
    return "".join(filter(str.isdigit, written))
