"""The report's tables: the suite's as the paper prints it, and all measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from colligate.bench.report.columns import Cell, Comparison, Head, column_of
from colligate.bench.report.contents import Contents
from colligate.bench.suites import Column, Method, Published


@dataclass(frozen=True)
class Ours:
    """A strategy's row; `style` is its mark in every chart."""

    label: str
    style: int
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True)
class Printed:
    """A row as a paper printed it, with the model it used: a value and a note's number each."""

    model: str
    cells: tuple[tuple[float, int | None] | None, ...]


@dataclass(frozen=True)
class Block:
    """A strategy's row, and beneath it what papers print: a row for each of their models.

    `ours` is None for a row that only the paper has.
    """

    label: str
    ours: Ours | None
    printed: tuple[Printed, ...]


@dataclass(frozen=True)
class Table:
    """The suite's table.

    `groups` are its data sets with the number of their columns, where labels alone do not tell
    the columns apart. `models` are the papers', `notes` theirs on single numbers, counted from 1.
    """

    heads: tuple[Head, ...]
    groups: tuple[tuple[str, int], ...]
    blocks: tuple[Block, ...]
    models: tuple[str, ...]
    notes: tuple[str, ...]


def suite_table(contents: Contents) -> tuple[Table, tuple[Comparison, ...]]:
    """The table with intervals and the papers' own numbers, and what its differences are worth."""
    columns = contents.columns()
    labels = [each.label or each.metric for each in columns]
    told = len(set(labels)) == len(labels)
    cells: list[dict[str, Cell]] = []
    heads: list[Head] = []
    comparisons: list[Comparison] = []
    for column, label in zip(columns, labels, strict=True):
        title = label if told else f"{column.dataset}: {label}"
        head, found, comparison = column_of(contents, column, title)
        heads.append(head)
        cells.append(found)
        if comparison is not None:
            comparisons.append(comparison)
    groups = () if told else _groups(heads)
    notes = tuple(dict.fromkeys(each.note for each in contents.suite.published if each.note))
    blocks = _blocks(contents, columns, cells, notes)
    models = dict.fromkeys(row.model for block in blocks for row in block.printed)
    table = Table(tuple(heads), groups, blocks, tuple(models), notes if models else ())
    return table, tuple(comparisons)


def _groups(heads: Sequence[Head]) -> tuple[tuple[str, int], ...]:
    groups: list[tuple[str, int]] = []
    for head in heads:
        if groups and groups[-1][0] == head.dataset:
            groups[-1] = (head.dataset, groups[-1][1] + 1)
        else:
            groups.append((head.dataset, 1))
    return tuple(groups)


def _blocks(
    contents: Contents,
    columns: Sequence[Column],
    cells: Sequence[Mapping[str, Cell]],
    notes: Sequence[str],
) -> tuple[Block, ...]:
    printed: dict[str, dict[str, dict[tuple[str, str], Published]]] = {}
    for each in contents.suite.published:
        by_model = printed.setdefault(each.row, {}).setdefault(each.model, {})
        by_model[each.dataset, each.metric] = each

    def rows_of(label: str) -> tuple[Printed, ...]:
        found = []
        for model, numbers in printed.get(label, {}).items():
            line = [numbers.get((each.dataset, each.metric)) for each in columns]
            if any(line):
                numbered = tuple(_number(each, notes) if each else None for each in line)
                found.append(Printed(model, numbered))
        return tuple(found)

    blocks = []
    for style, method in enumerate(contents.methods):
        label = method.label or method.name
        ours = Ours(label, style, tuple(found.get(method.name) for found in cells))
        blocks.append(Block(label, ours, rows_of(label)))
    run = {block.label for block in blocks}
    alone = [Block(row, None, rows) for row in printed if row not in run and (rows := rows_of(row))]
    return (*blocks, *alone)


def _number(each: Published, notes: Sequence[str]) -> tuple[float, int | None]:
    return each.value, notes.index(each.note) + 1 if each.note else None


@dataclass(frozen=True)
class Measured:
    """All metrics of a data set: a row each, a mean for each strategy."""

    dataset: str
    methods: tuple[Method, ...]
    rows: tuple[tuple[str, tuple[float | None, ...]], ...]


def all_measures(contents: Contents) -> tuple[Measured, ...]:
    """Every metric that was measured, by data set: means alone."""
    found = []
    for dataset in contents.datasets:
        methods = tuple(each for each in contents.methods if contents.of(dataset, each.name))
        rows = []
        for metric in contents.measured(dataset):
            values = [contents.asked(dataset, each.name, metric).values() for each in methods]
            rows.append((metric, tuple(fmean(each) if each else None for each in values)))
        found.append(Measured(dataset, methods, tuple(rows)))
    return tuple(found)
