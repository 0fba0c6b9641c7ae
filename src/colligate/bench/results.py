"""A run's results as tables and figures see them: rows by data set and strategy, and verdicts."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import TypedDict

from colligate.bench.compare import collect_values
from colligate.bench.outcome import Row, read_rows
from colligate.bench.provenance import Provenance, read_provenance
from colligate.bench.suites import Column, Method, Suite
from colligate.bench.totals import Totals, read_totals

QuestionKey = tuple[str, str]
"""A data set and the id of a question of it."""


class Resampling(TypedDict, total=False):
    """Arguments of the bootstraps that tell which values are not independent."""

    strata: Sequence[str]
    clusters: Sequence[Hashable]


# The metrics that tell most, where a suite has no columns: those that were measured, in this order.
_FIRST = ("containment", "em", "str_em", "qampari_f1", "claim_recall", "rouge_lsum", "f1")
# What is left to compare strategies by, where no right answers are known.
_COST = ("tokens", "seconds")
_RIGHT_OR_WRONG = re.compile(r"right|(containment|em|judge_dual|str_hit)(_\w+)?")
_GRADED = re.compile(r"(str_em|f1|qampari_f1|claim_recall|loong_official|loong_spd|rouge)(_\w+)?")
# Metrics that are not shares: a judge's marks of 1 to 100, words, and costs.
_NOT_SHARES = (
    *("loong", "p_len", "evidence_words", "length", "tokens", "calls", "seconds", "rounds"),
    *("searches", "chat_", "scoring_", "offline_", "online_", "input_", "output_", "usd"),
    *("retrieved_depth", "view_tokens"),
)
_MARKS = ("loong_spd", "loong_official")  # of a judge, of 100


@dataclass(frozen=True)
class RunResults:
    """A run's rows. `methods` and `datasets` are those that have rows, in the suite's order."""

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
        """The run's seed, which the resamples are drawn by as well."""
        return self.provenance.seed

    def rows_of(self, dataset: str, method: str) -> Sequence[Row]:
        """Return the rows of a strategy on a data set."""
        return self.by_cell.get((dataset, method), ())

    def members(self, dataset: str) -> tuple[str, ...]:
        """Return the data sets of a group that have rows, or the one of that name."""
        groups = {each.name: each.datasets for each in self.suite.groups}
        return tuple(name for name in groups.get(dataset, (dataset,)) if name in self.datasets)

    def values(self, dataset: str, method: str, metric: str) -> dict[QuestionKey, float]:
        """Return a metric by question of a data set or a group, where it was measured."""
        return {
            (name, question): value
            for name in self.members(dataset)
            for question, value in collect_values(self.rows_of(name, method), metric).items()
        }

    def total(self, dataset: str, method: str, metric: str) -> float | None:
        """Return a metric that only a whole run has; of a group the mean of its data sets'."""
        found = [self.totals.get((name, method), {}) for name in self.members(dataset)]
        values = [each[metric] for each in found if metric in each]
        return fmean(values) if values else None

    def metrics_of(self, dataset: str) -> tuple[str, ...]:
        """Return the names of a data set's metrics, in the order in which they first came."""
        rows = (row for method in self.methods for row in self.rows_of(dataset, method.name))
        return tuple(dict.fromkeys(name for row in rows for name in row.metrics))

    def resampling(self, keys: Iterable[QuestionKey]) -> Resampling:
        """Return how values of these questions are drawn: one that is there twice, together.

        Several data sets may ask the same one; each set keeps its size.
        """
        keys = list(keys)
        shared: Resampling = {"clusters": [self._asked[key] for key in keys]}
        datasets = [dataset for dataset, _ in keys]
        return {**shared, "strata": datasets} if len(set(datasets)) > 1 else shared

    @cached_property
    def _asked(self) -> Mapping[QuestionKey, Hashable]:
        return {(row.dataset, row.question): row.asked for row in self.rows}

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """The suite's columns of data sets that have rows.

        They are the metrics that tell most where the suite has none, or none of them was measured.
        """
        found = tuple(each for each in self.suite.columns if self.members(each.dataset))
        if any(map(self._is_measured, found)):
            return found
        columns = []
        for dataset in self.datasets:
            measured = self.metrics_of(dataset)
            first = [name for name in _FIRST if name in measured][:3]
            for name in first or [name for name in _COST if name in measured]:
                columns.append(Column(dataset, name, name, _default_scale(name)))
        return tuple(columns) or found

    def _is_measured(self, column: Column) -> bool:
        return any(
            any(column.metric in row.metrics for row in self.rows_of(name, method.name))
            or column.metric in self.totals.get((name, method.name), {})
            for name in self.members(column.dataset)
            for method in self.methods
        )

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
        for pattern in (_RIGHT_OR_WRONG, _GRADED):
            for name in (*named, *_FIRST, *measured):
                if name in measured and pattern.fullmatch(name):
                    return name
        return ""

    @cached_property
    def verdicts(self) -> Mapping[str, Counter[Verdict]]:
        """How many answers of each verdict a strategy has."""
        deciding = {dataset: self.deciding_metric(dataset) for dataset in self.datasets}
        found: dict[str, Counter[Verdict]] = {each.name: Counter() for each in self.methods}
        for row in self.rows:
            found[row.strategy][classify(row, deciding[row.dataset])] += 1
        return found


def read_results(directory: Path) -> RunResults:
    """Read the results in a run's folder."""
    provenance = read_provenance(directory)
    suite = provenance.parsed_suite()
    rows = read_rows(directory)
    by_cell: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        by_cell[row.dataset, row.strategy].append(row)
    datasets = _put_known_first(
        (each.name for each in suite.datasets), (row.dataset for row in rows)
    )
    known = {each.name: each for each in suite.strategies}
    names = _put_known_first(known, (row.strategy for row in rows))
    methods = tuple(known.get(name, Method(name, name, label=name)) for name in names)
    totals = read_totals(directory)
    return RunResults(directory, suite, provenance, rows, datasets, methods, dict(by_cell), totals)


def _put_known_first(known: Iterable[str], there: Iterable[str]) -> tuple[str, ...]:
    """Return those that are there: known ones first, in their order, then the others."""
    found = dict.fromkeys(there)
    return (*(name for name in known if found.pop(name, 0) is None), *found)


def _default_scale(metric: str) -> float:
    return 1.0 if metric.startswith(_NOT_SHARES) else 100.0


class Verdict(StrEnum):
    """What became of an answer, from best to worst."""

    RIGHT = "right"
    PARTLY = "partly right"
    ANSWERED = "not judged"
    WRONG = "wrong"
    REFUSED = "refused"
    FAILED = "failed"


MEANINGS: Mapping[Verdict, str] = {
    Verdict.RIGHT: "the right answer, or a refusal where the documents hold no answer",
    Verdict.PARTLY: "some of what was asked for",
    Verdict.ANSWERED: "answered; no metric of this run decides how well",
    Verdict.WRONG: "another answer than the right one",
    Verdict.REFUSED: "no answer, although the documents hold it",
    Verdict.FAILED: "an error; counts as wrong everywhere",
}


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


# Numbers as a person reads them

NONE = "\N{EN DASH}"
_MINUS = "\N{MINUS SIGN}"


def format_number(value: float | None, places: int | None = None) -> str:
    """Return a number with about three figures, a true minus, and separated thousands."""
    if value is None or not math.isfinite(value):
        return NONE
    if places is None:
        size = abs(value)
        places = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 0.1 or not size else 4
    text = f"{value:,.{places}f}"
    if not text.strip("-0.,"):
        text = text.lstrip("-")
    return text.replace("-", _MINUS)


def format_interval(
    value: float, low: float | None, high: float | None, places: int | None = 1
) -> str:
    """Return a value with its interval in brackets; without one where it has no width."""
    text = format_number(value, places)
    if low is None or high is None or low == high:
        return text
    return f"{text} [{format_number(low, places)}, {format_number(high, places)}]"


def format_p(p: float) -> str:
    """Return a p-value as papers write it."""
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def choose_places(scale: float) -> int | None:
    """Return 1 decimal for percentages, as papers print them; None for as many as needed."""
    return 1 if scale == 100 else None


def order_by_chance(dataset: str, question: str) -> str:
    """Return a key by which the same questions come first each time, from all data sets alike."""
    return sha256(f"{dataset}\0{question}".encode(errors="replace")).hexdigest()


def format_count(count: int, what: str) -> str:
    """Return a count of things in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
