"""A column of the table: the mean of each strategy, its interval, and who differs from the best.

A column of a group of data sets is the mean of theirs, each weighing alike; its resamples are
drawn from each data set by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from colligate.bench.metrics.catalogue import higher_is_better
from colligate.bench.report.contents import Asked, Contents
from colligate.bench.significance import FEWEST, bootstrap, paired_bootstrap
from colligate.bench.suites import Column, Method


@dataclass(frozen=True)
class Cell:
    """A number of the table, already multiplied by its column's scale.

    `low` and `high` are its interval, None where a whole run gives one number, or the questions
    are too few for one. `n` are the questions it is the mean of. `stars` say how surely it
    differs from the best of its column, whose `best` is True unless the questions are too few.
    """

    value: float
    low: float | None
    high: float | None
    n: int
    best: bool = False
    stars: str = ""


@dataclass(frozen=True)
class Head:
    """A column: what stands over it, and how many questions most of its cells are the mean of.

    `title` names it where no data set stands above. `higher` values are better, or lower ones, or
    (None) neither. `printed_places` are those that the paper's
    numbers of the column are printed with.
    """

    dataset: str
    label: str
    title: str
    metric: str
    scale: float
    n: int
    higher: bool | None
    printed_places: int


@dataclass(frozen=True)
class Apart:
    """How far a strategy is from the best of a column, over the questions that both have.

    `sure`: the interval does not reach zero.
    """

    method: Method
    value: float
    low: float
    high: float
    p: float
    stars: str
    n: int
    sure: bool


@dataclass(frozen=True)
class Comparison:
    """A column's best strategy, and how far the others are from it."""

    head: Head
    best: Method
    others: tuple[Apart, ...]


def column_of(
    contents: Contents, column: Column, title: str
) -> tuple[Head, dict[str, Cell], Comparison | None]:
    """A column's head, its cells by strategy, and how the others differ from its best."""
    higher, scale = higher_is_better(column.metric), column.scale
    values = {
        each.name: found
        for each in contents.methods
        if (found := contents.asked(column.dataset, each.name, column.metric))
    }
    if not values:
        return _of_the_run(contents, column, title)
    means = {name: fmean(_weighed(found)) for name, found in values.items()}
    best = None if higher is None else (max if higher else min)(means, key=means.__getitem__)
    apart = {
        each.name: difference
        for each in contents.methods
        if best is not None and each.name in values and each.name != best
        if (difference := _apart(each, values[each.name], values[best], scale, contents.seed))
    }
    cells = {}
    for name, found in values.items():
        low, high = None, None
        if len(found) >= FEWEST:
            drawn = bootstrap(_weighed(found), contents.seed, strata=_strata(found))
            low, high = (end * scale for end in drawn)
        stars = apart[name].stars if name in apart else ""
        shown_best = (
            best is not None
            and len(found) >= FEWEST
            and means[name] == means[best]
            and len(set(means.values())) > 1
        )
        cells[name] = Cell(means[name] * scale, low, high, len(found), shown_best, stars)
    sizes = [len(found) for found in values.values()]
    head = _head(contents, column, title, max(sizes, key=sizes.count))
    by_name = {each.name: each for each in contents.methods}
    others = tuple(apart.values())
    if best is None or not others:
        return head, cells, None
    return head, cells, Comparison(head, by_name[best], others)


def _of_the_run(
    contents: Contents, column: Column, title: str
) -> tuple[Head, dict[str, Cell], None]:
    """A metric that only a whole run has; without interval, and nothing to pair."""
    values = {
        each.name: found
        for each in contents.methods
        if (found := contents.total(column.dataset, each.name, column.metric)) is not None
    }
    higher = higher_is_better(column.metric)
    best = (max if higher else min)(values.values(), default=0.0)
    cells = {}
    for name, value in values.items():
        n = sum(len(contents.of(member, name)) for member in contents.members(column.dataset))
        shown_best = higher is not None and value == best and len(set(values.values())) > 1
        cells[name] = Cell(value * column.scale, None, None, n, shown_best)
    sizes = [cell.n for cell in cells.values()]
    return _head(contents, column, title, max(sizes, key=sizes.count, default=0)), cells, None


def _head(contents: Contents, column: Column, title: str, n: int) -> Head:
    return Head(
        dataset=column.dataset,
        label=column.label or column.metric,
        title=title,
        metric=column.metric,
        scale=column.scale,
        n=n,
        higher=higher_is_better(column.metric),
        printed_places=_printed_places(contents, column),
    )


def _printed_places(contents: Contents, column: Column) -> int:
    """As many as the longest of the column has: numbers read from a file have lost last zeros."""
    printed = [
        f"{each.value:.10g}".partition(".")[2]
        for each in contents.suite.published
        if (each.dataset, each.metric) == (column.dataset, column.metric)
    ]
    return max(map(len, printed), default=0)


def _apart(
    method: Method,
    own: Mapping[Asked, float],
    best: Mapping[Asked, float],
    scale: float,
    seed: int,
) -> Apart | None:
    """None where they have too few questions in common for any test."""
    ours = {asked: value for asked, value in own.items() if asked in best}
    if len(ours) < FEWEST:
        return None
    theirs = {asked: best[asked] for asked in ours}
    found = paired_bootstrap(_weighed(ours), _weighed(theirs), seed, strata=_strata(ours))
    return Apart(
        method=method,
        value=found.mean * scale,
        low=found.low * scale,
        high=found.high * scale,
        p=found.p,
        stars=found.stars,
        n=found.questions,
        sure=found.low > 0 or found.high < 0,
    )


def _weighed(values: Mapping[Asked, float]) -> list[float]:
    """The values, such that their mean is that of the data sets' means."""
    sizes = Counter(dataset for dataset, _ in values)
    if len(sizes) == 1:
        return list(values.values())
    share = len(values) / len(sizes)
    return [value * share / sizes[dataset] for (dataset, _), value in values.items()]


def _strata(values: Mapping[Asked, float]) -> Sequence[str] | None:
    datasets = [dataset for dataset, _ in values]
    return datasets if len(set(datasets)) > 1 else None
