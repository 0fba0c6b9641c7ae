"""A run's results as tables: the suite's with intervals and the paper's numbers, and all measures.

A cell is the mean of a strategy over questions with its bootstrap interval; stars tell whether it
differs from the best of its column (`paired_bootstrap`), corrected for as many comparisons as the
column has pairs of strategies. A column of a group of data sets is the mean of theirs, equally
weighted; its resamples are drawn from each data set separately, and a question that several rows or
sets ask is drawn once for all of them. A metric `A/B` is the mean of A divided by that of B over
the questions that have both; `A over STRATEGY` is what A is more than that strategy's, by question.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from statistics import fmean

from pydantic import TypeAdapter

from colligate.errors import ColligateError
from colligate.lab.bench.metrics.catalogue import find_group, higher_is_better
from colligate.lab.bench.outcome import Row, read_rows
from colligate.lab.bench.plan import Plan
from colligate.lab.bench.provenance import RUN
from colligate.lab.bench.significance import (
    FEWEST,
    Difference,
    Resampling,
    bootstrap,
    correct_for_many,
    paired_bootstrap,
)
from colligate.lab.bench.suites import OVER, Column, Method, Published
from colligate.lab.jobs.files import write_whole

QuestionKey = tuple[str, str]
"""A data set and the id of a question of it."""

TextTable = Sequence[Sequence[str]]
"""A table of texts; its first row is its head."""

MAIN = (
    *("containment", "em", "str_em", "qampari_f1", "claim_recall", "loong_spd", "loong_official"),
    *("rouge_lsum", "f1", "recall_at_10"),
)
"""The metrics that tell most about an answer, where neither a person nor the suite names one."""

# What is left to compare strategies by, where no right answers are known.
_COST = ("tokens", "seconds")
_RIGHT_OR_WRONG = re.compile(r"right|(containment|em|judge_dual|str_hit)(_\w+)?")
_GRADED = re.compile(r"(str_em|f1|qampari_f1|claim_recall|loong_official|loong_spd|rouge)(_\w+)?")
_MARKS = ("loong_spd", "loong_official")  # of a judge, of 100


class RunResults:
    """The results in a run's folder; `datasets` and `methods` have rows, in the suite's order."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.provenance = RUN.read(directory)
        self.suite = self.provenance.parsed_suite()
        self.rows = read_rows(directory)
        totals = load_totals(directory, self.rows)
        self._totals = {key: cell.metrics for key, cell in totals.items()}
        known = {each.name: each for each in self.suite.strategies}
        names = _put_known_first(known, (row.strategy for row in self.rows))
        self.methods = tuple(known.get(name, Method(name, name, label=name)) for name in names)
        self.datasets = _put_known_first(
            (each.name for each in self.suite.datasets), (row.dataset for row in self.rows)
        )
        self._by_cell: dict[tuple[str, str], list[Row]] = defaultdict(list)
        for row in self.rows:
            self._by_cell[row.dataset, row.strategy].append(row)
        self.asked = {row.key[:2]: row.asked for row in self.rows}

    def members(self, dataset: str) -> tuple[str, ...]:
        """Return the data sets of a group that have rows, or the one of that name; "" is all."""
        groups = {each.name: each.datasets for each in self.suite.groups}
        named = groups.get(dataset, (dataset,)) if dataset else self.datasets
        return tuple(name for name in named if name in self.datasets)

    def rows_of(self, dataset: str, method: str) -> list[Row]:
        """Return the rows of a strategy on a data set or a group."""
        cells = (self._by_cell.get((name, method), ()) for name in self.members(dataset))
        return [row for rows in cells for row in rows]

    def metrics_of(self, dataset: str) -> tuple[str, ...]:
        """Return the names of a data set's metrics, in the order in which they first came."""
        rows = (row for method in self.methods for row in self.rows_of(dataset, method.name))
        return tuple(dict.fromkeys(name for row in rows for name in row.metrics))

    def values(self, dataset: str, method: str, metric: str) -> dict[QuestionKey, float]:
        """Return a metric by question of a data set or a group, where it was measured."""
        metric, _, base = metric.partition(OVER)
        found = {
            (name, question): value
            for name in self.members(dataset)
            for question, value in collect_values(self.rows_of(name, method), metric).items()
        }
        if not base:
            return found
        less = self.values(dataset, base, metric)
        return {key: value - less[key] for key, value in found.items() if key in less}

    def total(self, dataset: str, method: str, metric: str) -> float | None:
        """Return a metric that only a whole run has; of a group the mean of its data sets'."""
        found = [self._totals.get((name, method), {}) for name in self.members(dataset)]
        values = [each[metric] for each in found if metric in each]
        return fmean(values) if values else None

    def means(self, dataset: str, method: str) -> dict[str, float | None]:
        """Return the mean of each metric and column of a data set, and those of the whole run."""
        names = dict.fromkeys(name for row in self.rows_of(dataset, method) for name in row.metrics)
        names |= dict.fromkeys(each.metric for each in self.columns if each.dataset == dataset)
        values = {name: self.values(dataset, method, name).values() for name in names}
        means = {name: fmean(found) if found else None for name, found in values.items()}
        return {**means, **self._totals.get((dataset, method), {})}

    def resampling(self, keys: Iterable[QuestionKey]) -> Resampling:
        """Return how values of questions are drawn: those of one together, each data set apart."""
        keys = list(keys)
        shared: Resampling = {"clusters": [self.asked[key] for key in keys]}
        datasets = [dataset for dataset, _ in keys]
        return {**shared, "strata": datasets} if len(set(datasets)) > 1 else shared

    def interval(
        self, values: Mapping[QuestionKey, float], scale: float = 1.0
    ) -> tuple[float, float] | tuple[None, None]:
        """Return the 95 % interval of the mean, times `scale`; too few questions have none."""
        if len(values) < FEWEST:
            return None, None
        ends = bootstrap([*values.values()], self.provenance.seed, **self.resampling(values))
        return ends[0] * scale, ends[1] * scale

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The suite's columns of data sets with rows; if none was measured, main metrics."""
        found = tuple(each for each in self.suite.columns if self.members(each.dataset))
        cells = ((c.dataset, each.name, c.metric) for c in found for each in self.methods)
        if any(self.total(*cell) is not None or self.values(*cell) for cell in cells):
            return found
        return tuple(each for name in self.datasets for each in self.main_columns(name)) or found

    def main_columns(self, dataset: str) -> list[Column]:
        """Return columns of the main metrics of a data set that were measured."""
        measured = self.metrics_of(dataset)
        first = [name for name in MAIN if name in measured][:3]
        names = first or [name for name in _COST if name in measured]
        return [Column(dataset, name, name, _default_scale(name)) for name in names]

    def scale(self, metric: str) -> float:
        """Return what a metric is multiplied by in a figure: as in the table, or shares by 100."""
        named = (each.scale for each in self.columns if each.metric == metric)
        return next(named, _default_scale(metric))

    def deciding_metric(self, *datasets: str) -> str:
        """Return the metric that decides what is right in most of the data sets, or ""."""
        found = Counter(name for name in map(self._find_deciding, datasets) if name)
        return found.most_common(1)[0][0] if found else ""

    def _find_deciding(self, dataset: str) -> str:
        """Return the first column that is 0 or 1, or the first such metric, or a graded one."""
        measured = self.metrics_of(dataset)
        named = [each.metric for each in self.columns if dataset in self.members(each.dataset)]
        there = [name for name in (*named, *MAIN, *measured) if name in measured]
        patterns = (_RIGHT_OR_WRONG, _GRADED)
        return next((name for p in patterns for name in there if p.fullmatch(name)), "")

    @cached_property
    def verdicts(self) -> dict[str, Counter[Verdict]]:
        """How many answers of each verdict a strategy has."""
        found: dict[str, Counter[Verdict]] = {each.name: Counter() for each in self.methods}
        for row in self.rows:
            found[row.strategy][self.classify(row)] += 1
        return found

    def classify(self, row: Row) -> Verdict:
        """Return the verdict on an answer by the metric that decides in its data set."""
        return classify(row, self._deciding[row.dataset])

    @cached_property
    def _deciding(self) -> Mapping[str, str]:
        return {dataset: self.deciding_metric(dataset) for dataset in self.datasets}

    @cached_property
    def table(self) -> ResultTable:
        """The suite's table."""
        labels = [each.label or each.metric for each in self.columns]
        distinct = len(set(labels)) == len(labels)
        columns = [_make_column(self, each, distinct) for each in self.columns]
        printed = _collect_printed(self)
        ours = [TableRow(m.label, m.name, printed.pop(m.label, {})) for m in self.methods]
        rows = (*ours, *(TableRow(label, None, lines) for label, lines in printed.items()))
        models = tuple(dict.fromkeys(model for row in rows for model in row.printed))
        notes = tuple(dict.fromkeys(each.note for each in self.suite.published if each.note))
        return ResultTable(tuple(columns), rows, models, notes if models else ())


def _put_known_first(known: Iterable[str], there: Iterable[str]) -> tuple[str, ...]:
    """Return those that are there: known ones first, in their order, then the others."""
    found = dict.fromkeys(there)
    return (*(name for name in known if found.pop(name, 0) is None), *found)


def _default_scale(metric: str) -> float:
    """Return 100 for shares; marks of a judge, words and costs are no shares."""
    return 100.0 if higher_is_better(metric) and not metric.startswith("loong") else 1.0


class Verdict(StrEnum):
    """What became of an answer, from best to worst."""

    RIGHT = "right"
    PARTLY = "partly right"
    ANSWERED = "not judged"
    WRONG = "wrong"
    REFUSED = "refused"
    FAILED = "failed"


def classify(row: Row, metric: str) -> Verdict:
    """Return the verdict on an answer by a metric that is 1 for a right one and 0 for a wrong one.

    Of the marks that a judge gives (`loong_spd`, `loong_official`) 100 is right. Without the metric
    an answer is not judged.
    """
    if row.outcome.error:
        return Verdict.FAILED
    if not row.answerable:
        return Verdict.WRONG if row.outcome.found else Verdict.RIGHT
    if not row.outcome.found:
        return Verdict.REFUSED
    value = row.metrics.get(metric)
    if value is None:
        return Verdict.ANSWERED
    share = value / 100 if metric in _MARKS else value
    if share > 0.999:
        return Verdict.RIGHT
    return Verdict.PARTLY if share > 0.001 else Verdict.WRONG


# What counts for a row that lacks a metric which the others of its strategy have

_OF_A_STAGE = re.compile(r"gold_(?P<how>any|all|share)_\w+")
_OF_A_ROLE = re.compile(r"(calls|input_tokens|output_tokens)_\w+")
_OF_A_SEARCH = re.compile(r"gold_(any|all|share)_retrieved|[a-z]+_at_\d+")


def collect_values(rows: Sequence[Row], metric: str) -> dict[str, float]:
    """Return a metric by question, of all rows of a strategy on a data set.

    Which stages and roles a strategy has is known from its rows alone. So where some have one, a
    row that failed before it, or ended without any evidence, has 0 gold in that stage, and one
    that did not call that role has 0 calls and tokens of it. A failure counts as a search without
    results only where the other rows searched.
    """
    if "/" in metric:
        return _divide_means(*(collect_values(rows, name) for name in metric.split("/", 1)))
    finite = {row.question: row.metrics.get(metric, math.nan) for row in rows}
    found = {question: value for question, value in finite.items() if math.isfinite(value)}
    if not found:
        return {}
    if _OF_A_SEARCH.fullmatch(metric):
        came_through = [row for row in rows if not row.outcome.error]
        if came_through and not any(row.question in found for row in came_through):
            return {}
    elif of_stage := _OF_A_STAGE.fullmatch(metric):
        evidence = f"gold_{of_stage['how']}_evidence"
        for row in rows:
            if evidence in row.metrics and (row.outcome.error or not row.outcome.evidence):
                found.setdefault(row.question, 0.0)
    elif _OF_A_ROLE.fullmatch(metric):
        for row in rows:
            if "calls" in row.metrics:
                found.setdefault(row.question, 0.0)
    return found


def _divide_means(above: Mapping[str, float], below: Mapping[str, float]) -> dict[str, float]:
    """Return values whose mean is the ratio of both means, and varies as it does (delta method)."""
    both = [question for question in above if question in below]
    mean = fmean(below[question] for question in both) if both else 0.0
    if not mean:
        return {}
    ratio = fmean(above[question] for question in both) / mean
    return {each: ratio + (above[each] - ratio * below[each]) / mean for each in both}


# The suite's table
@dataclass(frozen=True)
class ResultTable:
    """The suite's table.

    `rows` are our strategies' and then those that only papers have. `models` are the papers',
    `notes` theirs on single numbers, counted from 1.
    """

    columns: tuple[ResultColumn, ...]
    rows: tuple[TableRow, ...]
    models: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class ResultColumn:
    """A column of the table: its head, and its cells by the name of the strategy.

    `label` has the data set's name where labels alone are not distinct. `n` is how many questions
    most of its cells are the mean of. Values are better if `higher`, or lower, or (None) neither.
    `best` is the strategy that the others are compared with.
    """

    dataset: str
    metric: str
    label: str
    scale: float
    n: int
    higher: bool | None
    cells: Mapping[str, Cell]
    best: str | None

    @property
    def places(self) -> int | None:
        """The decimals of our numbers: 1 for percentages, as papers print them."""
        return 1 if self.scale == 100 else None


@dataclass(frozen=True)
class Cell:
    """A number of the table with its interval, both multiplied by its column's scale.

    `n` is the number of questions it is the mean of; few of them, or a whole run that gives one
    number, have no interval. `gap` is how far it is from the column's best over the questions that
    both have.
    """

    value: float
    n: int
    low: float | None = None
    high: float | None = None
    best: bool = False
    gap: Difference | None = None

    @property
    def stars(self) -> str:
        """How surely it differs from the best of its column."""
        return self.gap.stars if self.gap else ""


@dataclass(frozen=True)
class TableRow:
    """A strategy's row (`name` None: a paper's alone), and what papers print of it by model."""

    label: str
    name: str | None
    printed: Mapping[str, Sequence[Published | None]]


def _collect_printed(results: RunResults) -> dict[str, dict[str, list[Published | None]]]:
    """Return what papers print of the table's columns, by row and model."""
    places = {(each.dataset, each.metric): at for at, each in enumerate(results.columns)}
    printed: dict[str, dict[str, list[Published | None]]] = {}
    for each in results.suite.published:
        if (at := places.get((each.dataset, each.metric))) is not None:
            models = printed.setdefault(each.row, {})
            models.setdefault(each.model, [None] * len(results.columns))[at] = each
    return printed


def _make_column(results: RunResults, column: Column, distinct: bool) -> ResultColumn:
    """Return a column; of a metric that only a whole run has, without intervals or gaps."""
    dataset, metric, scale = column.dataset, column.metric, column.scale
    label, higher = column.label or metric, higher_is_better(metric)
    names = [each.name for each in results.methods]
    values = {name: results.values(dataset, name, metric) for name in names}
    values = {name: found for name, found in values.items() if found}
    if values:
        means = {name: fmean(_weigh(found).values()) for name, found in values.items()}
        sizes = {name: len(found) for name, found in values.items()}
        # Nothing can be tested against a strategy that has too few questions.
        enough = [name for name in means if sizes[name] >= FEWEST]
    else:
        totals = {name: results.total(dataset, name, metric) for name in names}
        means = {name: value for name, value in totals.items() if value is not None}
        sizes = {name: len(results.rows_of(dataset, name)) for name in means}
        enough = list(means)
    best = None
    if higher is not None and means:
        best = (max if higher else min)(enough or means, key=means.__getitem__)
    gaps = _measure_gaps(results, values, best, scale) if values and best is not None else {}
    differ = len(set(means.values())) > 1
    cells = {}
    for name, mean in means.items():
        low, high = results.interval(_weigh(values.get(name, {})), scale)
        is_best = differ and best is not None and name in enough and mean == means[best]
        cells[name] = Cell(mean * scale, sizes[name], low, high, is_best, gaps.get(name))
    label = label if distinct else f"{dataset}: {label}"
    n = max(sizes.values(), key=list(sizes.values()).count, default=0)
    return ResultColumn(dataset, metric, label, scale, n, higher, cells, best)


def _measure_gaps(
    results: RunResults, values: Mapping[str, Mapping[QuestionKey, float]], best: str, scale: float
) -> dict[str, Difference]:
    """Return the gaps from the best, without those that have too few questions for any test."""
    found: dict[str, Difference] = {}
    for name in values:
        ours = {key: value for key, value in values[name].items() if key in values[best]}
        if name != best and len(ours) >= FEWEST:
            theirs = _weigh({key: values[best][key] for key in ours})
            both = [*_weigh(ours).values()], [*theirs.values()]
            gap = paired_bootstrap(*both, results.provenance.seed, **results.resampling(ours))
            mean, low, high = gap.mean * scale, gap.low * scale, gap.high * scale
            found[name] = replace(gap, mean=mean, low=low, high=high)
    pairs = len(values) * (len(values) - 1) // 2
    return dict(zip(found, correct_for_many(list(found.values()), pairs), strict=True))


def _weigh(values: Mapping[QuestionKey, float]) -> Mapping[QuestionKey, float]:
    """Return the values weighted so that their mean is the mean of the data sets' means."""
    sizes = Counter(dataset for dataset, _ in values)
    if len(sizes) < 2:
        return values
    share = len(values) / len(sizes)
    return {key: value * share / sizes[key[0]] for key, value in values.items()}


def make_measure_tables(results: RunResults) -> tuple[TextTable, ...]:
    """Return a table for each data set: every metric that was measured, means alone."""
    tables = []
    for dataset in results.datasets:
        methods = [each for each in results.methods if results.rows_of(dataset, each.name)]
        means = [results.means(dataset, each.name) for each in methods]
        rows = [
            (metric, *(format_number(each.get(metric)) for each in means))
            for metric in results.metrics_of(dataset)
        ]
        tables.append(((dataset, *(each.label for each in methods)), *rows))
    return tuple(tables)


# Numbers as a person reads them

NONE = "\N{EN DASH}"


def format_number(value: float | None, places: int | None = None) -> str:
    """Return a number with about three figures, a true minus, and separated thousands."""
    if value is None or not math.isfinite(value):
        return NONE
    if places is None:
        size = abs(value)
        places = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 0.1 or not size else 4
    return f"{value:z,.{places}f}".replace("-", "\N{MINUS SIGN}")


def format_interval(low: float, high: float, places: int | None = 1) -> str:
    """Return an interval in brackets."""
    return f"[{format_number(low, places)}, {format_number(high, places)}]"


# Metrics of a whole run, which no single row has: `totals.json` in its folder

TOTALS_FILE = "totals.json"


@dataclass(frozen=True)
class _Totals:
    """The values of a strategy on a data set, the groups `taken`, and a digest of their `rows`."""

    dataset: str
    strategy: str
    rows: str = ""
    metrics: Mapping[str, float] = field(default_factory=dict)
    taken: tuple[str, ...] = ()


_TOTALS = TypeAdapter(list[_Totals])


def take_totals(directory: Path, plan: Plan, rows: Collection[Row]) -> Mapping[str, str]:
    """Take the whole run's metrics that the file lacks; return why some were not taken. Blocks."""
    kept, problems = load_totals(directory, rows), dict[str, str]()
    before = dict(kept)
    for asked in plan.datasets:
        questions = {each.id: each for each in asked.questions}
        groups = [g for g in map(find_group, asked.dataset.metrics) if g.of_run is not None]
        for entry in plan.entries:
            key = asked.dataset.name, entry.method.name
            of = [row for row in rows if row.key[::2] == key and row.question in questions]
            cell = kept.get(key, _Totals(*key, digest_rows(of)))
            for group in groups if of else ():
                if group.of_run is None or group.name in cell.taken:
                    continue
                try:
                    found = group.of_run([(questions[row.question], row.outcome) for row in of])
                except ColligateError as error:
                    problems[group.name] = str(error)
                    continue
                metrics, taken = {**cell.metrics, **found}, (*cell.taken, group.name)
                kept[key] = cell = replace(cell, metrics=metrics, taken=taken)
    if kept != before:
        text = json.dumps([asdict(cell) for cell in kept.values()], ensure_ascii=False, indent=1)
        write_whole(directory / TOTALS_FILE, [text])
    return problems


def load_totals(directory: Path, rows: Collection[Row]) -> dict[tuple[str, str], _Totals]:
    """Return what was taken of these rows, by data set and strategy. Blocks."""
    file = directory / TOTALS_FILE
    if not file.is_file():
        return {}
    try:
        cells = _TOTALS.validate_json(file.read_bytes())
    except (OSError, ValueError) as error:
        why, hint = f"{type(error).__name__}: {error}", "delete it; the same command makes it again"
        raise ColligateError(f"{file} cannot be read", why, hint) from error
    found = {(cell.dataset, cell.strategy): cell for cell in cells}
    of = {key: digest_rows(row for row in rows if row.key[::2] == key) for key in found}
    return {key: cell for key, cell in found.items() if cell.rows == of[key]}


def digest_rows(rows: Iterable[Row]) -> str:
    """Return a digest that differs where a row is another one or was asked again."""
    told = sorted((row.question, row.attempt, row.began) for row in rows)
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
