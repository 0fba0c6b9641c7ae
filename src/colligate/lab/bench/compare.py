"""Two strategies over the questions that both were asked, and whether they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from colligate.errors import UsageError
from colligate.lab.bench.significance import Difference, paired_bootstrap
from colligate.lab.bench.tables import MAIN, RunResults


@dataclass(frozen=True)
class MetricComparison:
    """A metric of a data set on both sides, over common questions; `missing` counts the others."""

    dataset: str
    metric: str
    first: str
    second: str
    means: tuple[float, float]
    difference: Difference
    missing: tuple[int, int]


class _Side(NamedTuple):
    """One strategy of a run, and the name that tells it apart from the other side."""

    name: str
    results: RunResults
    strategy: str


def compare_runs(
    first: Path,
    second: Path | None = None,
    *,
    metrics: Sequence[str] = (),
    strategies: Sequence[str] = (),
) -> list[MetricComparison]:
    """Compare two runs strategy by strategy, or two strategies of one run, over common questions.

    With two runs `strategies` keeps only those of these names; with one it names the two, and
    without a name the run's first is compared with each of the others. Without `metrics` it is
    that of the data set's first column in the suite's table, or the one that tells most. UsageError
    if there is nothing to compare.
    """
    ours = RunResults(first)
    if second is None:
        pairs = _pair_strategies(ours, strategies)
    else:
        pairs = _pair_runs(ours, RunResults(second), strategies)
    found = [each for pair in pairs for each in _compare_sides(*pair, metrics)]
    if not found:
        what = " or ".join(metrics) or "a metric of right and wrong answers"
        hint = "" if metrics else "name one with --metric, such as tokens"
        raise UsageError(
            "there is nothing to compare", f"no question has {what} on both sides", hint
        )
    return found


def _pair_strategies(run: RunResults, names: Sequence[str]) -> list[tuple[_Side, _Side]]:
    chosen = list(dict.fromkeys(names)) or _list_strategies(run, ())
    if len(chosen) < 2 or (names and len(chosen) != 2):
        why = f"expected the names of two strategies, got {', '.join(chosen) or 'none'}"
        raise UsageError(
            f"cannot compare strategies of {run.directory}", why, "or name another run"
        )
    _list_strategies(run, chosen)
    first, *others = (_Side(name, run, name) for name in chosen)
    return [(first, other) for other in others]


def _pair_runs(
    first: RunResults, second: RunResults, names: Sequence[str]
) -> list[tuple[_Side, _Side]]:
    ours, theirs = (_list_strategies(run, names) for run in (first, second))
    one, other = (run.directory for run in (first, second))
    labels = (one.name, other.name) if one.name != other.name else (one, other)
    both = [name for name in ours if name in theirs and (name in names or not names)]
    if not both:
        raise UsageError(f"{one} and {other} have no strategy in common", "")
    return [
        (_Side(f"{labels[0]}: {name}", first, name), _Side(f"{labels[1]}: {name}", second, name))
        for name in both
    ]


def _list_strategies(run: RunResults, names: Sequence[str]) -> list[str]:
    """Return the strategies of a run; UsageError if it has no rows of one of the names."""
    there = [method.name for method in run.methods]
    for name in names:
        if name not in there:
            hint = f"there are {', '.join(there)}"
            raise UsageError(f"{run.directory} has no rows of {name!r}", "", hint)
    return there


def _compare_sides(
    first: _Side, second: _Side, metrics: Sequence[str]
) -> Iterator[MetricComparison]:
    for dataset in first.results.datasets:
        rows = [side.results.rows_of(dataset, side.strategy) for side in (first, second)]
        measured = [{name for row in each for name in row.metrics} for each in rows]
        columns = [each.metric for each in first.results.suite.columns if each.dataset == dataset]
        main = [name for name in (*columns, *MAIN) if name in measured[0] & measured[1]][:1]
        for metric in metrics or main:
            one, other = (
                side.results.values(dataset, side.strategy, metric) for side in (first, second)
            )
            asked, asked_there = first.results.asked, second.results.asked
            # Two runs may have other questions under the same ids.
            both = [each for each in one if each in other and asked[each] == asked_there[each]]
            if not both:
                continue
            values = [one[question] for question in both], [other[question] for question in both]
            means = fmean(values[0]), fmean(values[1])
            missing = len(other) - len(both), len(one) - len(both)
            clusters = [asked[question] for question in both]
            seed = first.results.provenance.seed
            difference = paired_bootstrap(*values, seed, clusters=clusters)
            names = dataset, metric, first.name, second.name
            yield MetricComparison(*names, means, difference, missing)
