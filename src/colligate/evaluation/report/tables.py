"""The report's tables: the suite's as the paper prints it, who differs from whom, all measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from colligate.evaluation.metrics.catalogue import higher_is_better
from colligate.evaluation.report.contents import Contents
from colligate.evaluation.significance import bootstrap, paired_bootstrap
from colligate.evaluation.suites import Column, Method

NONE = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True)
class Cell:
    """A number of the table with its interval, already multiplied by its column's scale.

    `n` are the questions it is the mean of. `stars` say how surely it differs from the best of
    its column, whose `best` is True.
    """

    value: float
    low: float
    high: float
    n: int
    best: bool = False
    stars: str = ""


@dataclass(frozen=True)
class Head:
    """A column: what stands over it, and how many questions most of its cells are the mean of.

    `printed_places` are those that the paper's numbers of the column are printed with.
    """

    dataset: str
    label: str
    metric: str
    scale: float
    n: int
    higher: bool
    printed_places: int


@dataclass(frozen=True)
class TableRow:
    """A strategy's numbers, or what a paper printed for it with its `model`."""

    label: str
    cells: tuple[Cell | None, ...]
    style: int = 0
    name: str = ""
    model: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A strategy's row, and beneath it what papers print: a row for each of their models.

    `ours` is None for a row that only the paper has.
    """

    label: str
    ours: TableRow | None
    published: tuple[TableRow, ...]


@dataclass(frozen=True)
class Table:
    """The suite's table; `groups` are its data sets with the number of their columns."""

    heads: tuple[Head, ...]
    groups: tuple[tuple[str, int], ...]
    blocks: tuple[Block, ...]
    models: tuple[str, ...]


@dataclass(frozen=True)
class Apart:
    """How far a strategy is from the best of a column, over the questions that both have."""

    method: Method
    value: float
    low: float
    high: float
    p: float
    stars: str
    n: int


@dataclass(frozen=True)
class Comparison:
    """A column's best strategy, and how far the others are from it."""

    head: Head
    best: Method
    others: tuple[Apart, ...]


def suite_table(contents: Contents) -> tuple[Table, tuple[Comparison, ...]]:
    """The table with intervals and the papers' own numbers, and what its differences are worth."""
    columns = contents.columns()
    cells: list[dict[str, Cell]] = []
    heads: list[Head] = []
    comparisons: list[Comparison] = []
    for column in columns:
        head, found, comparison = _column(contents, column)
        heads.append(head)
        cells.append(found)
        if comparison is not None:
            comparisons.append(comparison)
    blocks, models = _blocks(contents, columns, cells)
    return Table(tuple(heads), _groups(heads), blocks, models), tuple(comparisons)


def _column(contents: Contents, column: Column) -> tuple[Head, dict[str, Cell], Comparison | None]:
    """A column's head, its cells by strategy, and how the others differ from its best."""
    higher = higher_is_better(column.metric)
    values = {
        each.name: found
        for each in contents.methods
        if (found := contents.values(column.dataset, each.name, column.metric))
    }
    sizes = [len(found) for found in values.values()]
    n = max(sizes, key=sizes.count) if sizes else 0
    label = column.label or column.metric
    places = _printed_places(contents, column)
    head = Head(column.dataset, label, column.metric, column.scale, n, higher, places)
    if not values:
        return head, {}, None
    means = {name: fmean(found.values()) for name, found in values.items()}
    best = (max if higher else min)(means, key=means.__getitem__)
    apart = {
        each.name: _apart(each, values[each.name], values[best], column.scale, contents.seed)
        for each in contents.methods
        if each.name in values and each.name != best
    }
    cells = {}
    for name, found in values.items():
        low, high = bootstrap(list(found.values()), contents.seed)
        scaled = (means[name] * column.scale, low * column.scale, high * column.scale)
        other = apart.get(name)
        cells[name] = Cell(*scaled, len(found), name == best, other.stars if other else "")
    others = tuple(each for each in apart.values() if each is not None)
    by_name = {each.name: each for each in contents.methods}
    return head, cells, Comparison(head, by_name[best], others) if others else None


def _printed_places(contents: Contents, column: Column) -> int:
    """As many as the longest of the column has: numbers read from a file have lost last zeros."""
    printed = [
        f"{each.value:.10g}".partition(".")[2]
        for each in contents.suite.published
        if (each.dataset, each.metric) == (column.dataset, column.metric)
    ]
    return max(map(len, printed), default=0)


def _apart(
    method: Method, own: Mapping[str, float], best: Mapping[str, float], scale: float, seed: int
) -> Apart | None:
    both = [question for question in own if question in best]
    if not both:
        return None
    found = paired_bootstrap([own[q] for q in both], [best[q] for q in both], seed)
    low, high = found.low * scale, found.high * scale
    return Apart(method, found.mean * scale, low, high, found.p, found.stars, found.questions)


def _groups(heads: Sequence[Head]) -> tuple[tuple[str, int], ...]:
    groups: list[tuple[str, int]] = []
    for head in heads:
        if groups and groups[-1][0] == head.dataset:
            groups[-1] = (head.dataset, groups[-1][1] + 1)
        else:
            groups.append((head.dataset, 1))
    return tuple(groups)


def _blocks(
    contents: Contents, columns: Sequence[Column], cells: Sequence[Mapping[str, Cell]]
) -> tuple[tuple[Block, ...], tuple[str, ...]]:
    printed: dict[str, dict[str, dict[tuple[str, str], float]]] = {}
    notes: dict[tuple[str, str], list[str]] = {}
    for each in contents.suite.published:
        by_model = printed.setdefault(each.row, {}).setdefault(each.model, {})
        by_model[each.dataset, each.metric] = each.value
        if each.note:
            notes.setdefault((each.row, each.model), []).append(each.note)

    def published(row: str) -> tuple[TableRow, ...]:
        found = []
        for model, numbers in printed.get(row, {}).items():
            line = tuple(_printed(numbers.get((c.dataset, c.metric))) for c in columns)
            said = tuple(dict.fromkeys(notes.get((row, model), ())))
            if any(line):
                found.append(TableRow(row, line, model=model, notes=said))
        return tuple(found)

    blocks = []
    for style, method in enumerate(contents.methods):
        label = method.label or method.name
        line = tuple(found.get(method.name) for found in cells)
        ours = TableRow(label, line, style, method.name)
        blocks.append(Block(label, ours, published(label)))
    run = {block.label for block in blocks}
    alone = [
        Block(row, None, rows) for row in printed if row not in run and (rows := published(row))
    ]
    models = (row.model for block in (*blocks, *alone) for row in block.published)
    return (*blocks, *alone), tuple(dict.fromkeys(models))


def _printed(value: float | None) -> Cell | None:
    return None if value is None else Cell(value, value, value, 0)


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
            values = [contents.values(dataset, each.name, metric).values() for each in methods]
            rows.append((metric, tuple(fmean(each) if each else None for each in values)))
        found.append(Measured(dataset, methods, tuple(rows)))
    return tuple(found)


def said(value: float | None, places: int | None = None) -> str:
    """A number as a person reads it: about three figures, a true minus, thousands apart."""
    if value is None or not math.isfinite(value):
        return NONE
    if places is None:
        size = abs(value)
        places = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 0.1 or not size else 4
    text = f"{value:,.{places}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", MINUS)


def places_of(scale: float) -> int | None:
    """Percentages have one place, as papers print them; other numbers as many as they need."""
    return 1 if scale == 100 else None
