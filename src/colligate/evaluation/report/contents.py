"""A run as the report sees it: its rows by data set and strategy, in the suite's order."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from colligate.evaluation.metrics.catalogue import higher_is_better
from colligate.evaluation.provenance import Provenance, read_provenance
from colligate.evaluation.rows import Row, read_rows
from colligate.evaluation.suites import Column, Method, Suite

_FIRST = ("containment", "em", "str_em", "qampari_f1", "claim_recall", "rouge_lsum", "f1")
"""Which metrics say most, where a suite has no columns: those that are there, in this order."""

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

    @property
    def seed(self) -> int:
        """The run's, which the resamples are drawn by as well."""
        return self.provenance.seed

    def of(self, dataset: str, method: str) -> Sequence[Row]:
        """The rows of a strategy on a data set."""
        return self.by_cell.get((dataset, method), ())

    def values(self, dataset: str, method: str, metric: str) -> dict[str, float]:
        """A metric by question, where it was measured."""
        return {
            row.question: row.metrics[metric]
            for row in self.of(dataset, method)
            if metric in row.metrics and math.isfinite(row.metrics[metric])
        }

    def measured(self, dataset: str) -> tuple[str, ...]:
        """The names of a data set's metrics, in the order in which they first came."""
        rows = (row for method in self.methods for row in self.of(dataset, method.name))
        return tuple(dict.fromkeys(name for row in rows for name in row.metrics))

    def columns(self) -> tuple[Column, ...]:
        """The suite's columns of data sets that have rows; where it has none, the first metrics."""
        if found := tuple(each for each in self.suite.columns if each.dataset in self.datasets):
            return found
        return tuple(
            Column(dataset, metric, metric, 100.0)
            for dataset in self.datasets
            for metric in [m for m in _FIRST if m in self.measured(dataset)][:3]
        )

    def scale(self, metric: str) -> float:
        """What a metric is multiplied by where it is drawn: as in the table, else shares by 100."""
        named = (each.scale for each in self.columns() if each.metric == metric)
        return next(named, 1.0 if metric.startswith(_COUNTED) else 100.0)

    def deciding(self, dataset: str) -> str:
        """The metric by which an answer is called right or wrong; empty where there is none."""
        measured = self.measured(dataset)
        named = [each.metric for each in self.columns() if each.dataset == dataset]
        wanted = ("containment", "em", *named, *_FIRST)
        return next((n for n in wanted if n in measured and higher_is_better(n)), "")


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
    return Contents(directory, suite, provenance, rows, datasets, methods, dict(by_cell))


def _in_order(known: Iterable[str], there: Iterable[str]) -> tuple[str, ...]:
    """Those that are there: known ones first, as known, then the others."""
    found = dict.fromkeys(there)
    return (*(n for n in known if found.pop(n, 0) is None), *found)
