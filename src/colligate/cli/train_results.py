"""What was curated, and what an evaluation found, as tables on standard output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colligate.cli.display import counted, note, say, table

if TYPE_CHECKING:
    from colligate.training.evaluation import EvaluationReport, Measure
    from colligate.training.samples import Card


def show_card(card: Card) -> None:
    """The samples by task and class; what was left out is noted."""
    rows = []
    for task, splits in card.samples.items():
        rows.append((task, "all", f"{splits['train']:,}", f"{splits['held_out']:,}"))
        for name, of_class in card.classes.get(task, {}).items():
            rows.append((task, name, f"{of_class['train']:,}", f"{of_class['held_out']:,}"))
    say(table(["task", "class", "train", "held out"], rows))
    for reason, count in card.discarded.items():
        note(f"left out: {counted(count, 'sample')}, {reason}")


def show_report(report: EvaluationReport) -> None:
    """A line for each metric, and for each adapter where there are any."""
    if not any(measure.adapter for measure in report.measures):
        rows = [_begun(each) for each in report.measures]
        say(table(["task", "metric", "samples", "base"], rows))
        return
    rows = [[*_begun(each), *_compared(each)] for each in report.measures]
    headings = ["task", "metric", "samples", "base", "adapted", "difference", "95% interval", "p"]
    headings += ["", "adapter"]
    if len(report.models) == 2:  # there is one alone: the last line need not say which
        headings, rows = headings[:-1], [row[:-1] for row in rows]
    say(table(headings, rows))


def _begun(measure: Measure) -> list[str]:
    from colligate.training.scores import LOWER_IS_BETTER

    less = " (less is better)" if measure.metric in LOWER_IS_BETTER else ""
    metric = f"{measure.metric}{less}"
    return [measure.task, metric, f"{measure.samples:,}", _number(measure.base)]


def _compared(measure: Measure) -> list[str]:
    found = measure.difference
    if found is None:
        return [_number(measure.adapted), "", "", "", "", measure.adapter]
    return [
        _number(measure.adapted),
        f"{found.mean:+.3f}",
        f"{found.low:+.3f} to {found.high:+.3f}",
        f"{found.p:.4f}" if found.enough else "",
        found.stars,
        measure.adapter,
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
