"""The report's tables: the suite's with intervals and the paper's numbers, and all measures.

A cell is the mean of a strategy over questions with its bootstrap interval; stars tell whether it
differs from the best of its column (`paired_bootstrap`), corrected for as many comparisons as the
column has pairs of strategies, since the best was chosen by its result. A column of a group of data
sets is the mean of theirs, equally weighted; its resamples are drawn from each data set separately,
and a question that several rows or sets ask is drawn once for all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from statistics import fmean

from colligate.bench.metrics.catalogue import higher_is_better
from colligate.bench.results import QuestionKey, RunResults, choose_places, format_number, format_p
from colligate.bench.significance import (
    FEWEST,
    Difference,
    bootstrap,
    correct_for_many,
    paired_bootstrap,
)
from colligate.bench.suites import Column, Method, Published

TextTable = Sequence[Sequence[str]]
"""A table of texts; its first row is its head."""


@dataclass(frozen=True)
class ResultTable:
    """The suite's table.

    `groups` are its data sets with the number of their columns, where the labels of columns are
    not distinct. `models` are the papers', `notes` theirs on single numbers, counted from 1.
    """

    columns: tuple[ColumnHead, ...]
    groups: tuple[tuple[str, int], ...]
    blocks: tuple[TableBlock, ...]
    models: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ColumnHead:
    """The head of a column, and how many questions most of its cells are the mean of.

    `title` names it where no data set is above it. Values are better if `higher`, or lower, or
    (None) neither. `printed_places` are the decimals of the paper's numbers of the column.
    """

    dataset: str
    label: str
    title: str
    metric: str
    scale: float
    n: int
    higher: bool | None
    printed_places: int

    @property
    def places(self) -> int | None:
        """The decimals of our numbers."""
        return choose_places(self.scale)


@dataclass(frozen=True)
class TableBlock:
    """A strategy's row, and below it what papers print: a row for each of their models.

    `cells` is None for a row that only the paper has.
    """

    label: str
    cells: tuple[Cell | None, ...] | None
    printed: tuple[PublishedRow, ...]


@dataclass(frozen=True)
class Cell:
    """A number of the table, already multiplied by its column's scale.

    `low` and `high` are its interval, None where a whole run gives one number, or the questions
    are too few for one. `n` is the number of questions it is the mean of. `stars` tell how surely
    it differs from the best of its column, whose `best` is True unless the questions are too few.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    best: bool = False
    stars: str = ""


@dataclass(frozen=True)
class PublishedRow:
    """A row as a paper printed it, with the model it used: values, each with its note's number."""

    model: str
    cells: tuple[tuple[float, int | None] | None, ...]


@dataclass(frozen=True)
class ColumnComparison:
    """A column's best strategy, and how far the others are from it."""

    head: ColumnHead
    best: Method
    others: tuple[Gap, ...]


@dataclass(frozen=True)
class Gap:
    """How far a strategy is from the best of a column, over the questions that both have.

    The difference is multiplied by the column's scale.
    """

    method: Method
    difference: Difference


def make_result_table(results: RunResults) -> tuple[ResultTable, tuple[ColumnComparison, ...]]:
    """Return the suite's table, and how each column's strategies differ from its best."""
    labels = [each.label or each.metric for each in results.columns]
    distinct = len(set(labels)) == len(labels)
    cells: list[dict[str, Cell]] = []
    heads: list[ColumnHead] = []
    comparisons: list[ColumnComparison] = []
    for column, label in zip(results.columns, labels, strict=True):
        title = label if distinct else f"{column.dataset}: {label}"
        head, found, comparison = _make_column(results, column, title)
        heads.append(head)
        cells.append(found)
        if comparison is not None:
            comparisons.append(comparison)
    notes = tuple(dict.fromkeys(each.note for each in results.suite.published if each.note))
    blocks = _make_blocks(results, cells, notes)
    models = tuple(dict.fromkeys(row.model for block in blocks for row in block.printed))
    groups = () if distinct else _group_heads(heads)
    table = ResultTable(tuple(heads), groups, blocks, models, notes if models else ())
    return table, tuple(comparisons)


def _make_column(
    results: RunResults, column: Column, title: str
) -> tuple[ColumnHead, dict[str, Cell], ColumnComparison | None]:
    """Return a column's head, its cells by strategy, and how the others differ from its best."""
    higher, scale = higher_is_better(column.metric), column.scale
    values = {
        each.name: found
        for each in results.methods
        if (found := results.values(column.dataset, each.name, column.metric))
    }
    if not values:
        return _make_run_column(results, column, title)
    means = {name: fmean(_weigh(found)) for name, found in values.items()}
    # Nothing can be tested against a strategy that has too few questions.
    enough = [name for name in means if len(values[name]) >= FEWEST] or list(means)
    best = None if higher is None else (max if higher else min)(enough, key=means.__getitem__)
    gaps = {} if best is None else _measure_gaps(results, values, best, scale)
    cells = {}
    for name, found in values.items():
        low, high = None, None
        if len(found) >= FEWEST:
            ends = bootstrap(_weigh(found), results.seed, **results.resampling(found))
            low, high = (end * scale for end in ends)
        is_best = (
            best is not None
            and len(found) >= FEWEST
            and means[name] == means[best]
            and len(set(means.values())) > 1
        )
        stars = gaps[name].difference.stars if name in gaps else ""
        cells[name] = Cell(means[name] * scale, low, high, len(found), is_best, stars)
    sizes = [len(found) for found in values.values()]
    head = _make_head(results, column, title, max(sizes, key=sizes.count))
    if best is None or not gaps:
        return head, cells, None
    by_name = {each.name: each for each in results.methods}
    return head, cells, ColumnComparison(head, by_name[best], tuple(gaps.values()))


def _make_run_column(
    results: RunResults, column: Column, title: str
) -> tuple[ColumnHead, dict[str, Cell], None]:
    """Return the column of a metric that only a whole run has: without intervals or gaps."""
    values = {
        each.name: found
        for each in results.methods
        if (found := results.total(column.dataset, each.name, column.metric)) is not None
    }
    higher = higher_is_better(column.metric)
    best = (max if higher else min)(values.values(), default=0.0)
    cells = {}
    for name, value in values.items():
        n = sum(len(results.rows_of(member, name)) for member in results.members(column.dataset))
        is_best = higher is not None and value == best and len(set(values.values())) > 1
        cells[name] = Cell(value * column.scale, None, None, n, is_best)
    sizes = [cell.n for cell in cells.values()]
    return _make_head(results, column, title, max(sizes, key=sizes.count, default=0)), cells, None


def _make_head(results: RunResults, column: Column, title: str, n: int) -> ColumnHead:
    # As many decimals as the column's longest number has: a file has lost the last zeros of others.
    printed = [
        f"{each.value:.10g}".partition(".")[2]
        for each in results.suite.published
        if (each.dataset, each.metric) == (column.dataset, column.metric)
    ]
    label, higher = column.label or column.metric, higher_is_better(column.metric)
    places = max(map(len, printed), default=0)
    return ColumnHead(column.dataset, label, title, column.metric, column.scale, n, higher, places)


def _measure_gaps(
    results: RunResults,
    values: Mapping[str, Mapping[QuestionKey, float]],
    best: str,
    scale: float,
) -> dict[str, Gap]:
    """Return the gaps from the best, without those that have too few questions for any test."""
    found: dict[Method, Difference] = {}
    for method in results.methods:
        own = values.get(method.name, {}).items()
        ours = {key: value for key, value in own if key in values[best]}
        if method.name != best and len(ours) >= FEWEST:
            theirs = _weigh({key: values[best][key] for key in ours})
            shared = results.resampling(ours)
            gap = paired_bootstrap(_weigh(ours), theirs, results.seed, **shared)
            mean, low, high = gap.mean * scale, gap.low * scale, gap.high * scale
            found[method] = replace(gap, mean=mean, low=low, high=high)
    pairs = len(values) * (len(values) - 1) // 2
    corrected = correct_for_many(list(found.values()), pairs)
    return {each.name: Gap(each, gap) for each, gap in zip(found, corrected, strict=True)}


def _weigh(values: Mapping[QuestionKey, float]) -> list[float]:
    """Return the values weighted so that their mean is the mean of the data sets' means."""
    sizes = Counter(dataset for dataset, _ in values)
    if len(sizes) == 1:
        return list(values.values())
    share = len(values) / len(sizes)
    return [value * share / sizes[dataset] for (dataset, _), value in values.items()]


def _group_heads(heads: Sequence[ColumnHead]) -> tuple[tuple[str, int], ...]:
    by_dataset = groupby(heads, key=lambda head: head.dataset)
    return tuple((dataset, len(list(group))) for dataset, group in by_dataset)


def _make_blocks(
    results: RunResults, cells: Sequence[Mapping[str, Cell]], notes: Sequence[str]
) -> tuple[TableBlock, ...]:
    printed: dict[str, dict[str, dict[tuple[str, str], Published]]] = {}
    for each in results.suite.published:
        by_model = printed.setdefault(each.row, {}).setdefault(each.model, {})
        by_model[each.dataset, each.metric] = each

    def number(each: Published | None) -> tuple[float, int | None] | None:
        if each is None:
            return None
        return each.value, notes.index(each.note) + 1 if each.note else None

    def rows_of(label: str) -> tuple[PublishedRow, ...]:
        found = []
        for model, numbers in printed.get(label, {}).items():
            line = [numbers.get((each.dataset, each.metric)) for each in results.columns]
            if any(line):
                found.append(PublishedRow(model, tuple(map(number, line))))
        return tuple(found)

    ours = [
        TableBlock(each.label, tuple(found.get(each.name) for found in cells), rows_of(each.label))
        for each in results.methods
    ]
    labels = {block.label for block in ours}
    alone = [
        TableBlock(row, None, rows)
        for row in printed
        if row not in labels and (rows := rows_of(row))
    ]
    return (*ours, *alone)


def make_difference_table(comparisons: Sequence[ColumnComparison]) -> TextTable:
    """Return every gap from a column's best as numbers; empty without any."""
    head = (
        *("column", "best", "strategy", "difference", "low", "high", "p", "p, corrected", "", "n"),
    )
    body = []
    for each in comparisons:
        for gap in each.others:
            found, places = gap.difference, each.head.places
            ends = (format_number(value, places) for value in (found.mean, found.low, found.high))
            names = (each.head.title, each.best.label, gap.method.label)
            p = [format_p(each) for each in (found.p, found.corrected) if each is not None]
            body.append((*names, *ends, *p, found.stars, f"{found.questions:,}"))
    return (head, *body) if body else ()


def make_measure_tables(results: RunResults) -> tuple[TextTable, ...]:
    """Return a table for each data set: every metric that was measured, means alone."""
    tables = []
    for dataset in results.datasets:
        methods = [each for each in results.methods if results.rows_of(dataset, each.name)]
        rows = []
        for metric in results.metrics_of(dataset):
            values = [results.values(dataset, each.name, metric).values() for each in methods]
            means = (format_number(fmean(each) if each else None) for each in values)
            rows.append((metric, *means))
        tables.append(((dataset, *(each.label for each in methods)), *rows))
    return tuple(tables)
