"""A run as the report sees it: its rows by data set and strategy, in the suite's order."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from colligate.bench.compare import counted
from colligate.bench.provenance import Provenance, read_provenance
from colligate.bench.rows import Row, read_rows
from colligate.bench.suites import Column, Method, Suite
from colligate.bench.totals import Totals, read_totals

Asked = tuple[str, str]
"""A data set and a question of it."""

_FIRST = ("containment", "em", "str_em", "qampari_f1", "claim_recall", "rouge_lsum", "f1")
"""Which metrics say most, where a suite has no columns: those that are there, in this order."""

_COST = ("tokens", "seconds")
"""What is left to tell strategies apart by, where nobody gave the right answers."""

_RIGHT_OR_WRONG = re.compile(r"(containment|em|judge_dual|str_hit)(_\w+)?")
_GRADED = re.compile(r"(str_em|f1|qampari_f1|claim_recall|loong_official|loong_spd|rouge)(_\w+)?")

_COUNTED = ("loong", "p_len", "evidence_words", "length", "tokens", "calls", "seconds", "rounds")
"""Metrics that are no shares: a judge's marks of 1 to 100, words, and what is paid."""


@dataclass(frozen=True)
class Contents:
    """All that the report is made from.

    `methods` and `datasets` are those that have rows. A method's place in `methods` is its style
    in every chart.
    """

    directory: Path
    suite: Suite
    provenance: Provenance
    rows: Sequence[Row]
    datasets: tuple[str, ...]
    methods: tuple[Method, ...]
    by_cell: Mapping[tuple[str, str], Sequence[Row]]
    totals: Totals

    @property
    def seed(self) -> int:
        """The run's, which the resamples are drawn by as well."""
        return self.provenance.seed

    def of(self, dataset: str, method: str) -> Sequence[Row]:
        """The rows of a strategy on a data set."""
        return self.by_cell.get((dataset, method), ())

    def members(self, dataset: str) -> tuple[str, ...]:
        """The data sets of a group that have rows, or the one of that name."""
        groups = {each.name: each.datasets for each in self.suite.groups}
        return tuple(name for name in groups.get(dataset, (dataset,)) if name in self.datasets)

    def asked(self, dataset: str, method: str, metric: str) -> dict[Asked, float]:
        """A metric by question of a data set or a group, where it was measured."""
        return {
            (name, question): value
            for name in self.members(dataset)
            for question, value in counted(self.of(name, method), metric).items()
        }

    def total(self, dataset: str, method: str, metric: str) -> float | None:
        """A metric that a whole run has; of a group the mean of its data sets'."""
        found = [self.totals.get((name, method), {}) for name in self.members(dataset)]
        values = [each[metric] for each in found if metric in each]
        return fmean(values) if values else None

    def measured(self, dataset: str) -> tuple[str, ...]:
        """The names of a data set's metrics, in the order in which they first came."""
        rows = (row for method in self.methods for row in self.of(dataset, method.name))
        return tuple(dict.fromkeys(name for row in rows for name in row.metrics))

    def columns(self) -> tuple[Column, ...]:
        """The suite's columns of data sets that have rows; the first metrics where it has none,
        or nothing in them was measured.
        """
        found = tuple(each for each in self.suite.columns if self.members(each.dataset))
        if any(map(self._has, found)):
            return found
        columns = []
        for dataset in self.datasets:
            measured = self.measured(dataset)
            first = [name for name in _FIRST if name in measured][:3]
            for name in first or [name for name in _COST if name in measured]:
                columns.append(Column(dataset, name, name, _scale_of(name)))
        return tuple(columns) or found

    def _has(self, column: Column) -> bool:
        """Whether any strategy has a number in a column."""
        return any(
            any(column.metric in row.metrics for row in self.of(name, method.name))
            or column.metric in self.totals.get((name, method.name), {})
            for name in self.members(column.dataset)
            for method in self.methods
        )

    def scale(self, metric: str) -> float:
        """What a metric is multiplied by where it is drawn: as in the table, else shares by 100."""
        named = (each.scale for each in self.columns() if each.metric == metric)
        return next(named, _scale_of(metric))

    def deciding(self, dataset: str) -> str:
        """The metric by which an answer is called right or wrong; empty where there is none.

        The first column that is 0 or 1, else the first metric that is, else one that is graded.
        """
        measured = self.measured(dataset)
        named = [each.metric for each in self.columns() if dataset in self.members(each.dataset)]
        for of_answers in (_RIGHT_OR_WRONG, _GRADED):
            for name in (*named, *_FIRST, *measured):
                if name in measured and of_answers.fullmatch(name):
                    return name
        return ""


def _scale_of(metric: str) -> float:
    return 1.0 if metric.startswith(_COUNTED) else 100.0


def read_contents(directory: Path) -> Contents:
    """What stands in a run's folder.

    Raises:
        MissingPath: there is no run there.
        ColligateError: a file of it cannot be read.
    """
    provenance = read_provenance(directory)
    suite = provenance.parsed_suite()
    rows = read_rows(directory)
    by_cell: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_cell[row.dataset, row.strategy].append(row)
    datasets = _in_order((each.name for each in suite.datasets), (row.dataset for row in rows))
    known = {each.name: each for each in suite.strategies}
    names = _in_order(known, (row.strategy for row in rows))
    methods = tuple(known.get(name, Method(name, name, label=name)) for name in names)
    totals = read_totals(directory)
    return Contents(directory, suite, provenance, rows, datasets, methods, dict(by_cell), totals)


def _in_order(known: Iterable[str], there: Iterable[str]) -> tuple[str, ...]:
    """Those that are there: known ones first, as known, then the others."""
    found = dict.fromkeys(there)
    return (*(n for n in known if found.pop(n, 0) is None), *found)
