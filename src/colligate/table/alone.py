"""Filling by a reader that reads one passage at a time: a cell is the first reading that is sure.

A figure is the row of a table whose label is like the column's name. Else the beginning of the
document is read, which says what it is, and the passages that a search finds, each alone: an answer
of a few words, which must stand there word for word, and the odds that the passage says so.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence

from colligate.core.answer import Form, Verdict, make_citation
from colligate.core.prompts import build_messages, render_passages, render_question
from colligate.core.run import Run, Shown, show_ranked
from colligate.documents import Document, Span
from colligate.models import Capability, Role
from colligate.readers.finding import Finding, find
from colligate.readers.pointwise import (
    ANSWER,
    REPLY_TOKENS,
    ask_whether_said,
    is_none,
    pick_rows,
    state_short,
)
from colligate.readers.promise import load_promise, logit
from colligate.readers.quoting import keep_table_heads
from colligate.table.book import Cell, CellValue, Reason
from colligate.table.columns import Column
from colligate.table.figures import Rows, find_figure, read_rows
from colligate.table.values import Plain, normalise

BEGINNING = 4_000  # characters of a document that are always read: they say what it is
_READ = 2  # passages that a search finds
_RISK = 0.1  # share of wrong cells among the filled ones
_QUESTION = "What is the {}?"
_DIGITS = re.compile(r"\d(?:[\d.,]*\d)?")


async def fill_cells(
    columns: Sequence[Column], document: Document, run: Run, *, k: int, pool: int
) -> AsyncIterator[tuple[Column, Cell]]:
    """Yield each column with its cell: the first reading that is sure, or why none is.

    `k` passages are searched for, of which a reranker orders `pool`.

    Raises:
        ColligateError: the models fail.
    """
    odds = Capability.LABELS in run.model(Role.READER).capabilities
    left = [column for column in columns if odds and not column.many]
    for column in columns:
        if column not in left:
            yield column, await _ask_reader(column, document, run, k=k, pool=pool)
    figures = [column for column in left if column.type in ("number", "money")]
    rows = await read_rows(document, run) if figures else None
    for column in figures:
        if rows and (value := await _find_row(column, rows, document, run)):
            left.remove(column)
            yield column, Cell((value,))
    unsure = []
    for column in left:  # all in turn: a local model computes the beginning once
        value = await _read_beginning(column, document, run)
        if _is_sure(value):
            yield column, _make_cell([value])
        else:
            unsure.append((column, value))
    for column, value in unsure:
        found = await _search(column, document, run, k=k, pool=pool)
        yield column, _make_cell([value, *found])


async def _find_row(column: Column, rows: Rows, document: Document, run: Run) -> CellValue | None:
    """Return the figure of the row whose label is the column's name, if there is one."""
    figure = await find_figure(column.label, rows, run, money=column.type == "money")
    if figure is None:
        return None
    probability = load_promise("row").probability([figure.likeness])
    return _make_value(figure.written, column, document, figure.row, probability)


async def _read_beginning(column: Column, document: Document, run: Run) -> CellValue | None:
    """Return what the beginning of a document says."""
    span = document.trim(0, BEGINNING)
    return await _read(column, Finding(Shown(document.passage(span)), 0.0), run) if span else None


async def _search(
    column: Column, document: Document, run: Run, *, k: int, pool: int
) -> list[CellValue | None]:
    """Return what the passages say that likely answer, of those that a search finds."""
    hits = await run.find(column.label, k=k, pool=pool, documents=[document.id])
    question = _QUESTION.format(column.label)
    shown = await keep_table_heads(await pick_rows(question, show_ranked(hits), run), run)
    found = await find(question, shown, run) or [Finding(each, 0.0) for each in shown]
    return [await _read(column, each, run) for each in found[:_READ]]


async def _ask_reader(column: Column, document: Document, run: Run, *, k: int, pool: int) -> Cell:
    """Return what the reader itself says of passages: all that they name, or without odds."""
    hits = await run.find(column.label, k=k, pool=pool, documents=[document.id])
    form = Form.LIST if column.many else Form.SHORT
    answer = await run.read(_QUESTION.format(column.label), show_ranked(hits), form=form)
    if not answer.citations:
        return Cell(reason=Reason.MISSING)
    written = answer.short or answer.text
    value, unit = _normalise_printed(written, column, document, answer.citations[0].span)
    citation = answer.citations[0].to_json()
    return Cell((CellValue(written, value, unit, citation, answer.probability),))


def _make_cell(values: Sequence[CellValue | None]) -> Cell:
    """Return the cell of the surest value, if it is sure enough."""
    best = max(filter(None, values), key=lambda each: each.probability or 0.0, default=None)
    if best is None:
        return Cell(reason=Reason.MISSING)
    if _is_sure(best):
        return Cell((best,))
    why = f"“{best.written[:80]}” is right with a probability of {best.probability:.2f}"
    return Cell(reason=Reason.UNCONFIRMED, why=why)


def _is_sure(value: CellValue | None) -> bool:
    limit = load_promise("cell").limit(_RISK)
    return value is not None and (value.probability or 0.0) >= limit


async def _read(column: Column, found: Finding, run: Run) -> CellValue | None:
    """Return what one passage says; None if nothing that stands in it word for word."""
    passage = found.shown.passage
    question = _QUESTION.format(column.label)
    messages = build_messages(ANSWER, render_passages([passage]), render_question(question))
    written = (await run.chat(messages, max_tokens=REPLY_TOKENS)).text.strip()
    stated = None if is_none(written) else await state_short(written, found, run)
    if stated is None:
        return None
    says = await ask_whether_said(question, written, [passage], run)
    probability = load_promise("cell").probability([logit(says or 0.0)])
    document = await run.document(passage.document_id)
    return _make_value(written, column, document, stated.places[0].span, probability)


def _make_value(
    written: str, column: Column, document: Document, span: Span, probability: float
) -> CellValue | None:
    """Return a value with its place; None if it is not of the column's type."""
    value, unit = _normalise_printed(written, column, document, span)
    if value is None and column.type in ("number", "money", "date"):
        return None
    citation = make_citation(document, span, (), "read for the table", Verdict.SUPPORTED)
    return CellValue(written, value, unit, citation.to_json(), probability)


def _normalise_printed(
    written: str, column: Column, document: Document, span: Span
) -> tuple[Plain, str]:
    """Return value and unit of a text, with the unit printed over its table ("in thousands").

    A figure without a scale of its own keeps its digits as its value: what the printed unit excepts
    ("except per share data") no code can tell.
    """
    value, unit = normalise(written, column, document.language)
    printed = document.printed_unit(span)
    digits = _DIGITS.search(written)
    if digits and printed and value == normalise(digits[0], column, document.language)[0]:
        unit = f"{unit} {printed}".strip()
    return value, unit
