"""The results of a bench as tables on standard output."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from colligate.cli.display import counted, note, say, table

if TYPE_CHECKING:
    from colligate.bench.compare import MetricComparison
    from colligate.bench.outcome import Row
    from colligate.bench.run import SuiteRun
# Of a suite without columns: these of the metrics that were taken.
_SHOWN = ("containment", "f1", "em", "str_em", "claim_recall", "tokens", "seconds")


def collect_means(done: SuiteRun) -> dict[str, Any]:
    """The means by data set and strategy, for programs."""
    cells = []
    for asked in done.plan.datasets:
        for entry in done.plan.entries:
            cell = (asked.dataset.name, entry.method.name)
            rows = _select(done, *cell)
            means = {name: _mean(rows, name) for name in _list_metrics(rows)}
            cells.append(
                {
                    "dataset": asked.dataset.name,
                    "strategy": entry.method.name,
                    "questions": len(rows),
                    "failed": sum(bool(row.outcome.error) for row in rows),
                    "metrics": {**means, **done.totals.get(cell, {})},
                }
            )
    return {"suite": done.plan.suite.name, "asked": done.asked, "cells": cells}


def show_results(done: SuiteRun) -> None:
    """A table a data set: those of the suite's columns that were taken, or what says most."""
    suite = done.plan.suite
    for asked in done.plan.datasets:
        name = asked.dataset.name
        every = [row for row in done.rows.values() if row.dataset == name]
        whole = {cell[1]: values for cell, values in done.totals.items() if cell[0] == name}
        measured = {*_list_metrics(every), *(metric for each in whole.values() for metric in each)}
        columns = [(c.metric, c.label, c.scale) for c in suite.columns_of(name)]
        columns = [each for each in columns if each[0] in measured]
        columns = columns or [(each, each, 1.0) for each in _SHOWN if each in measured]
        cells = []
        for entry in done.plan.entries:
            rows = _select(done, name, entry.method.name)
            total = whole.get(entry.method.name, {})
            values = [
                _format_scaled(total.get(metric, _mean(rows, metric)), scale)
                for metric, _, scale in columns
            ]
            failed = sum(bool(row.outcome.error) for row in rows)
            cells.append((entry.method.label, *values, str(len(rows)), str(failed or "")))
        headings = [label for _, label, _ in columns]
        say(table([name, *headings, "questions", "failed"], cells))


def show_comparison(found: Sequence[MetricComparison]) -> None:
    """Print a line for each comparison."""
    rows = [
        (
            each.dataset,
            each.metric,
            each.first,
            each.second,
            _format_scaled(each.means[0], 1),
            _format_scaled(each.means[1], 1),
            _format(each.difference.mean, "+"),
            f"{_format(each.difference.low, '+')} to {_format(each.difference.high, '+')}",
            f"{each.difference.p:.4f}" if each.difference.enough else "",
            each.difference.stars,
            str(each.difference.questions),
        )
        for each in found
    ]
    headings = ["data set", "metric", "first", "second", "mean", "mean", "difference"]
    say(table([*headings, "95% interval", "p", "", "questions"], rows))
    for each in found:
        for side, count in zip((each.first, each.second), each.missing, strict=True):
            if count:
                questions = counted(count, "question")
                note(f"{each.dataset}, {each.metric}: {side} lacks {questions} of the other side")


def _select(done: SuiteRun, dataset: str, strategy: str) -> list[Row]:
    return [r for r in done.rows.values() if (r.dataset, r.strategy) == (dataset, strategy)]


def _list_metrics(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row.metrics))


def _mean(rows: Sequence[Row], metric: str) -> float | None:
    from colligate.bench.compare import collect_values

    values = collect_values(rows, metric).values()
    return sum(values) / len(values) if values else None


def _format_scaled(value: float | None, scale: float) -> str:
    return "" if value is None else _format(value * scale)


def _format(value: float, sign: str = "") -> str:
    """Return a number with four figures; of thousands all before the point."""
    return f"{value:{sign},.0f}" if abs(value) >= 1000 else f"{value:{sign}.4g}"
