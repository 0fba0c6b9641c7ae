"""What became of the answers, as bars; how far strategies are from the best, as panels."""

from __future__ import annotations

from collections.abc import Sequence

from colligate.bench.report.bars import Bar, Difference, differences, stacked
from colligate.bench.report.charts import NARROW, WIDE
from colligate.bench.report.columns import Comparison
from colligate.bench.report.contents import Contents
from colligate.bench.report.figures import Figure, Panel, label_of
from colligate.bench.report.numbers import places_of, said
from colligate.bench.report.verdicts import Verdict, verdicts


def verdict_bars(contents: Contents) -> Figure:
    """What became of the answers of each strategy."""
    counted = verdicts(contents)
    kinds = [kind for kind in Verdict if any(each[kind] for each in counted.values())]
    bars = [
        Bar(
            label_of(method),
            tuple(counted[method.name][kind] for kind in kinds),
            f"{counted[method.name].total():,}",
        )
        for method in contents.methods
    ]
    names = [kind.value.replace(" ", "-") for kind in kinds]
    title = "What became of the answers"
    head = ("strategy", *(kind.value for kind in kinds), "answers")
    body = [(bar.label, *(f"{count:,}" for count in bar.counts), bar.said) for bar in bars]
    return Figure(
        "verdicts",
        title,
        wide=stacked(bars, names, title=title, width=WIDE),
        narrow=stacked(bars, names, title=title, width=NARROW),
        numbers=(head, *body),
    )


def comparison_panels(comparisons: Sequence[Comparison]) -> tuple[Panel, ...]:
    """For each column of the table, how far every strategy is from the best."""
    panels = []
    for each in comparisons:
        places = places_of(each.head.scale)
        rows = []
        for other in each.others:
            label = label_of(other.method)
            told = (
                f"{label}: {said(other.value, places)} "
                f"[{said(other.low, places)}, {said(other.high, places)}], "
                f"p = {probability(other.p)}, n = {other.n:,}"
            )
            rows.append(
                Difference(label, other.value, other.low, other.high, other.stars, told, other.sure)
            )
        title = each.head.title
        unit = f"difference from {label_of(each.best)}"
        drawing = differences(rows, title=f"{title}, {unit}", unit=unit)
        panels.append(Panel(title, drawing))
    return tuple(panels)


def probability(p: float) -> str:
    """A p-value as papers write it."""
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")
