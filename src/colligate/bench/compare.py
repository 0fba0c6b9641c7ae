"""Two strategies over the questions that both were asked, and whether they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from colligate.bench.provenance import read_provenance
from colligate.bench.rows import Row, read_rows
from colligate.bench.significance import Difference, paired_bootstrap
from colligate.bench.suites import Suite
from colligate.errors import UsageError, closest

# A metric over the questions of a strategy: what counts for a row that does not have it.

_OF_A_STAGE = re.compile(r"gold_(?P<how>any|all|share)_\w+")
_OF_A_ROLE = re.compile(r"(calls|input_tokens|output_tokens)_\w+")
_OF_A_SEARCH = re.compile(r"gold_(any|all|share)_retrieved|[a-z]+_at_\d+")


def counted(rows: Sequence[Row], metric: str) -> dict[str, float]:
    """A metric by question, of all rows of a strategy on a data set.

    Which stages and roles a strategy has is known from its rows alone. So where some have one, a
    row that broke before it, or ended without any evidence, has 0 gold in that stage, and one
    that did not call that role has 0 calls and tokens of it. What broke counts as a search
    without results only where the others searched.
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


# What says most of an answer, where neither the call nor the suite's table names a metric.
_FIRST = (
    *("containment", "em", "str_em", "qampari_f1", "claim_recall", "loong_spd", "loong_official"),
    *("rouge_lsum", "f1", "recall_at_10"),
)

_NOTHING = "no question was asked on both sides"
_UNMEASURED = "nothing that says whether answers are right was measured on both sides"


@dataclass(frozen=True)
class Side:
    """One strategy of a run, by the name that tells it apart from the other side."""

    name: str
    rows: Sequence[Row]


@dataclass(frozen=True)
class Compared:
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
        """The comparison as `bench compare --json` prints it."""
        return {
            "dataset": self.dataset,
            "metric": self.metric,
            "first": self.first,
            "second": self.second,
            "first_mean": self.means[0],
            "second_mean": self.means[1],
            "difference": self.difference.mean,
            "low": self.difference.low,
            "high": self.difference.high,
            "p": self.difference.p if self.difference.enough else None,
            "stars": self.difference.stars,
            "questions": self.difference.questions,
            "missing_first": self.missing[0],
            "missing_second": self.missing[1],
        }


def compared(
    first: Path,
    second: Path | None = None,
    *,
    metrics: Sequence[str] = (),
    strategies: Sequence[str] = (),
    seed: int | None = None,
) -> list[Compared]:
    """Two runs strategy by strategy, or two strategies of one run, over common questions.

    With two runs `strategies` leaves those of these names; with one it names the two, and without
    a name the run's first is compared with each of the others. Without `metrics` it is that of the
    data set's first column in the suite's table, else the one that says most. Samples are drawn
    by `seed`, by default the first run's.

    Raises:
        MissingPath, FaultyRecord: there is no run, or its rows are damaged.
        UsageError: there is nothing to compare, or no such strategy or metric.
    """
    rows, made = read_rows(first), read_provenance(first)
    chosen = made.seed if seed is None else seed
    suite = made.parsed_suite()
    if second is None:
        pairs = list(_within(first, rows, strategies))
    else:
        pairs = list(_between(first, second, rows, read_rows(second), strategies))
    found = [each for pair in pairs for each in _compared(*pair, suite, metrics, chosen)]
    if not found:
        why, hint = f"no question has {' or '.join(metrics)} on both sides", ""
        if not metrics:
            common = any(_asked(ours) & _asked(theirs) for ours, theirs in pairs)
            why = _UNMEASURED if common else _NOTHING
            hint = "name one with --metric, such as tokens" if common else ""
        raise UsageError("there is nothing to compare", why, hint)
    return found


def _asked(side: Side) -> set[tuple[str, str]]:
    return {(row.dataset, row.question) for row in side.rows}


def _within(run: Path, rows: Sequence[Row], names: Sequence[str]) -> Iterable[tuple[Side, Side]]:
    there = list(dict.fromkeys(row.strategy for row in rows))
    _hold_to(run, there, names)
    names = list(dict.fromkeys(names))
    if not names and len(there) < 2:
        alone = f"it has rows of {there[0]} alone" if there else "it has no rows"
        raise UsageError(f"{run} has no strategies to compare", alone, "name another run as well")
    if len(names) == 1 or len(names) > 2:
        raise UsageError("two strategies of a run are compared", f"{len(names)} are named")
    first = names[0] if names else there[0] if there else ""
    others = names[1:] or [name for name in there if name != first]
    for other in others:
        yield _side(rows, first, first), _side(rows, other, other)


def _between(
    first: Path,
    second: Path,
    ours: Sequence[Row],
    theirs: Sequence[Row],
    names: Sequence[str],
) -> Iterable[tuple[Side, Side]]:
    for run, rows in ((first, ours), (second, theirs)):
        _hold_to(run, list(dict.fromkeys(row.strategy for row in rows)), names)
    told = first.name != second.name and first.name and second.name
    called, other = (first.name, second.name) if told else (first, second)
    both = {row.strategy for row in theirs}
    if not any(row.strategy in both for row in ours):
        raise UsageError(f"{first} and {second} have no strategy in common", "")
    for name in dict.fromkeys(row.strategy for row in ours):
        if name in both and (not names or name in names):
            yield (
                _side(ours, name, f"{called}: {name}"),
                _side(theirs, name, f"{other}: {name}"),
            )


def _side(rows: Sequence[Row], strategy: str, name: str) -> Side:
    return Side(name, [row for row in rows if row.strategy == strategy])


def _hold_to(run: Path, there: Sequence[str], names: Sequence[str]) -> None:
    for name in names:
        if name not in there:
            near = closest(name, there)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(there)}"
            raise UsageError(f"{run} has no rows of {name!r}", "", hint)


def _compared(
    first: Side, second: Side, suite: Suite, metrics: Sequence[str], seed: int
) -> Iterable[Compared]:
    datasets = {row.dataset for row in second.rows}
    for dataset in dict.fromkeys(row.dataset for row in first.rows):
        if dataset not in datasets:
            continue
        ours, theirs = _of(first, dataset), _of(second, dataset)
        columns = [column.metric for column in suite.columns_of(dataset)]
        for metric in metrics or _best([*columns, *_FIRST], ours, theirs):
            yield from _of_metric(dataset, metric, (first, ours), (second, theirs), seed)


def _of_metric(
    dataset: str,
    metric: str,
    first: tuple[Side, dict[str, Row]],
    second: tuple[Side, dict[str, Row]],
    seed: int,
) -> Iterable[Compared]:
    ours, theirs = (counted(list(rows.values()), metric) for _, rows in (first, second))
    both = [question for question in ours if question in theirs]
    if not both:
        return
    values = [ours[question] for question in both], [theirs[question] for question in both]
    yield Compared(
        dataset,
        metric,
        first[0].name,
        second[0].name,
        (sum(values[0]) / len(both), sum(values[1]) / len(both)),
        paired_bootstrap(*values, seed),
        (len(theirs) - len(both), len(ours) - len(both)),
    )


def _of(side: Side, dataset: str) -> dict[str, Row]:
    return {row.question: row for row in side.rows if row.dataset == dataset}


def _best(names: Sequence[str], ours: dict[str, Row], theirs: dict[str, Row]) -> list[str]:
    """The first of the names that was measured on both sides."""
    sides = [{name for row in rows.values() for name in row.metrics} for rows in (ours, theirs)]
    return [name for name in names if name in sides[0] & sides[1]][:1]
