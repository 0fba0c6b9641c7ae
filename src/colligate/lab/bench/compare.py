"""Two strategies over the questions that both were asked, and whether they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from colligate.errors import UsageError, closest
from colligate.lab.bench.outcome import Row, read_rows
from colligate.lab.bench.provenance import read_provenance
from colligate.lab.bench.significance import Difference, paired_bootstrap
from colligate.lab.bench.suites import Suite

# The metrics that tell most about an answer, where neither the call nor the suite names one.
_FIRST = (
    *("containment", "em", "str_em", "qampari_f1", "claim_recall", "loong_spd", "loong_official"),
    *("rouge_lsum", "f1", "recall_at_10"),
)


@dataclass(frozen=True)
class MetricComparison:
    """A metric of a data set on both sides, over the questions that both have.

    Means are over these alone; `missing` counts the questions that only the other side has.
    """

    dataset: str
    metric: str
    first: str
    second: str
    means: tuple[float, float]
    difference: Difference
    missing: tuple[int, int]

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as `bench compare --json` prints it."""
        return {
            "dataset": self.dataset,
            "metric": self.metric,
            "first": self.first,
            "second": self.second,
            "first_mean": self.means[0],
            "second_mean": self.means[1],
            **self.difference.to_json(),
            "questions": self.difference.questions,
            "missing_first": self.missing[0],
            "missing_second": self.missing[1],
        }


def compare_runs(
    first: Path,
    second: Path | None = None,
    *,
    metrics: Sequence[str] = (),
    strategies: Sequence[str] = (),
    seed: int | None = None,
) -> list[MetricComparison]:
    """Compare two runs strategy by strategy, or two strategies of one run, over common questions.

    With two runs `strategies` keeps only those of these names; with one it names the two, and
    without a name the run's first is compared with each of the others. Without `metrics` it is
    that of the data set's first column in the suite's table, or the one that tells most. Samples
    are drawn by `seed`, by default the first run's.

    Raises:
        MissingPath, FaultyRecord: there is no run, or its rows are damaged.
        UsageError: there is nothing to compare, or no such strategy or metric.
    """
    made = read_provenance(first)
    chosen = made.seed if seed is None else seed
    suite = made.parsed_suite()
    if second is None:
        pairs = _pair_strategies(first, strategies)
    else:
        pairs = _pair_runs(first, second, strategies)
    found = [each for pair in pairs for each in _compare_sides(*pair, suite, metrics, chosen)]
    if not found:
        why, hint = f"no question has {' or '.join(metrics)} on both sides", ""
        if not metrics:
            why = "no question was asked on both sides"
            if any(_list_questions(ours) & _list_questions(theirs) for ours, theirs in pairs):
                why = "no metric of right and wrong answers was measured on both sides"
                hint = "name one with --metric, such as tokens"
        raise UsageError("there is nothing to compare", why, hint)
    return found


_Side = tuple[str, Sequence[Row]]
"""One strategy of a run: the name that tells it apart from the other side, and its rows."""


def _list_questions(side: _Side) -> set[Hashable]:
    return {(row.dataset, row.question, row.asked) for row in side[1]}


def _pair_strategies(run: Path, names: Sequence[str]) -> list[tuple[_Side, _Side]]:
    there = _read_sides(run, names)
    chosen = list(dict.fromkeys(names)) or list(there)
    if names and len(chosen) != 2:
        why = f"expected the names of two strategies, got {len(chosen)}"
        raise UsageError("cannot compare strategies of one run", why)
    if len(chosen) < 2:
        alone = f"it has rows of {chosen[0]} alone" if chosen else "it has no rows"
        raise UsageError(f"{run} has no strategies to compare", alone, "name another run as well")
    first, *others = ((name, there[name]) for name in chosen)
    return [(first, other) for other in others]


def _pair_runs(first: Path, second: Path, names: Sequence[str]) -> list[tuple[_Side, _Side]]:
    ours, theirs = _read_sides(first, names), _read_sides(second, names)
    distinct = first.name != second.name and first.name and second.name
    one, other = (first.name, second.name) if distinct else (first, second)
    both = [name for name in ours if name in theirs]
    if not both:
        raise UsageError(f"{first} and {second} have no strategy in common", "")
    return [
        ((f"{one}: {name}", ours[name]), (f"{other}: {name}", theirs[name]))
        for name in both
        if not names or name in names
    ]


def _read_sides(run: Path, names: Sequence[str]) -> dict[str, list[Row]]:
    """Read the rows of a run by strategy; UsageError if it has none of one of the names."""
    there: dict[str, list[Row]] = {}
    for row in read_rows(run):
        there.setdefault(row.strategy, []).append(row)
    for name in names:
        if name not in there:
            near = closest(name, list(there))
            hint = f"did you mean {near}?" if near else f"there are {', '.join(there)}"
            raise UsageError(f"{run} has no rows of {name!r}", "", hint)
    return there


def _compare_sides(
    first: _Side, second: _Side, suite: Suite, metrics: Sequence[str], seed: int
) -> Iterable[MetricComparison]:
    for dataset in dict.fromkeys(row.dataset for row in first[1]):
        ours, theirs = (
            [row for row in rows if row.dataset == dataset] for _, rows in (first, second)
        )
        columns = [column.metric for column in suite.columns_of(dataset)]
        for metric in metrics or _find_metric([*columns, *_FIRST], ours, theirs):
            one, other = (collect_values(rows, metric) for rows in (ours, theirs))
            asked, asked_there = (
                {row.question: row.asked for row in rows} for rows in (ours, theirs)
            )
            # Two runs may have other questions under the same ids.
            both = [each for each in one if each in other and asked[each] == asked_there[each]]
            if not both:
                continue
            values = [one[question] for question in both], [other[question] for question in both]
            means = fmean(values[0]), fmean(values[1])
            missing = len(other) - len(both), len(one) - len(both)
            shared = [asked[question] for question in both]
            difference = paired_bootstrap(*values, seed, clusters=shared)
            names = dataset, metric, first[0], second[0]
            yield MetricComparison(*names, means, difference, missing)


def _find_metric(names: Sequence[str], ours: Sequence[Row], theirs: Sequence[Row]) -> list[str]:
    """Return the first of the names that was measured on both sides."""
    sides = [{name for row in rows for name in row.metrics} for rows in (ours, theirs)]
    return [name for name in names if name in sides[0] & sides[1]][:1]


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
    found = {
        row.question: row.metrics[metric]
        for row in rows
        if metric in row.metrics and math.isfinite(row.metrics[metric])
    }
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
