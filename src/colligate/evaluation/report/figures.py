"""The report's pictures: what each shows, its drawings for wide and narrow pages, its numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from colligate.evaluation.report import charts
from colligate.evaluation.report.attention import Attention, attention
from colligate.evaluation.report.charts import NARROW, WIDE, Axis, Bar, Dot, Line, Point
from colligate.evaluation.report.contents import Contents
from colligate.evaluation.report.tables import Comparison, places_of, said
from colligate.evaluation.report.verdicts import Verdict, verdicts
from colligate.evaluation.significance import bootstrap
from colligate.evaluation.suites import Method, Picture

Numbers = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Panel:
    """A small chart among others of one picture."""

    title: str
    drawing: str


@dataclass(frozen=True)
class Figure:
    """A picture: `wide` and `narrow` are the same chart, or `panels` stand side by side.

    `legend` are labels with their styles. The first of `numbers` is the head of the table that
    says the same in figures. `missing` says why there is no picture.
    """

    key: str
    title: str
    note: str = ""
    wide: str = ""
    narrow: str = ""
    panels: tuple[Panel, ...] = ()
    legend: tuple[tuple[str, int], ...] = ()
    numbers: Numbers = ()
    missing: str = ""


def pictures(contents: Contents) -> tuple[Figure, ...]:
    """The suite's pictures in its order, then those that every run has the numbers for."""
    asked = contents.suite.pictures
    found = [figure for picture in asked for figure in _DRAWN[picture.kind](contents, picture)]
    for kind in ("by-gold-position", "recall-at-k", "pareto"):
        if all(picture.kind != kind for picture in asked):
            more = _DRAWN[kind](contents, Picture(kind))
            found += [figure for figure in more if not figure.missing]
    return tuple(found)


def _by_gold_position(contents: Contents, picture: Picture) -> list[Figure]:
    """Quality by the place of the document that holds the answer."""
    datasets = [picture.dataset] if picture.dataset else list(contents.datasets)
    metric = picture.metric or _common(contents.deciding(each) for each in datasets)
    title = picture.label or f"{_capital(metric or 'quality')} by the place of the gold document"
    key = f"by-gold-position-{picture.dataset}-{picture.metric}".strip("-")
    series, body = [], []
    for style, method in enumerate(contents.methods):
        at: dict[int, list[float]] = {}
        for row in (row for name in datasets for row in contents.of(name, method.name)):
            value = row.metrics.get(metric)
            if row.gold_at is not None and value is not None and math.isfinite(value):
                at.setdefault(row.gold_at, []).append(value)
        points = []
        for place in sorted(at):
            point = _mean(at[place], place + 1, contents.seed, _scale(metric))
            told = (
                f"{_label(method)}, gold at {place + 1}: {_interval(point)}, n = {len(at[place])}"
            )
            points.append(replace(point, title=told))
            body.append((_label(method), str(place + 1), *_three(point), str(len(at[place]))))
        if points:
            series.append(Line(_label(method), tuple(points), style))
    if len({point.x for line in series for point in line.points}) < 2:
        why = "No data set of this run moves the gold document about."
        return [Figure(key, title, missing=why)]
    y = Axis(_unit(metric), 0.0, 100.0 if _scale(metric) == 100 else None)
    x = Axis("place of the gold document", whole=True)
    head = ("strategy", "place", metric, "low", "high", "n")
    note = "Whiskers are 95 % intervals (bootstrap over questions)."
    return [_lines(key, title, note, series, x, y, (head, *body))]


_AT_K = re.compile(r"(?P<stem>\w+)_at_(?P<k>\d+)")


def _recall_at_k(contents: Contents, picture: Picture) -> list[Figure]:
    """Recall, or another measure of the first k that a search returned, by data set."""
    stem = picture.metric or "recall"
    title = picture.label or f"{_capital(stem)} against k"
    by_dataset: list[tuple[str, list[Line]]] = []
    body: list[tuple[str, ...]] = []
    for dataset in [picture.dataset] if picture.dataset else contents.datasets:
        measured = (_AT_K.fullmatch(name) for name in contents.measured(dataset))
        cuts = sorted(int(match["k"]) for match in measured if match and match["stem"] == stem)
        series = []
        for style, method in enumerate(contents.methods):
            points = []
            for k in cuts:
                values = list(contents.values(dataset, method.name, f"{stem}_at_{k}").values())
                if values:
                    point = _mean(values, k, contents.seed, 100.0)
                    told = f"{_label(method)}, first {k}: {_interval(point)}, n = {len(values)}"
                    points.append(replace(point, title=told))
                    numbers = (*_three(point), str(len(values)))
                    body.append((dataset, _label(method), str(k), *numbers))
            if points:
                series.append(Line(_label(method), tuple(points), style))
        if series and len(cuts) > 1:
            by_dataset.append((dataset, series))
    if not by_dataset:
        why = "No strategy of this run searched, or this was not measured."
        return [Figure("recall", title, missing=why)]
    x = Axis("documents looked at (k)", logarithmic=True, whole=True)
    y = Axis("%", 0.0, 100.0)
    note = "Of the documents that searches returned, in the order in which they were first found."
    table = (("data set", "strategy", "k", stem, "low", "high", "n"), *body)
    if len(by_dataset) == 1:
        dataset, series = by_dataset[0]
        return [_lines("recall", f"{title}, {dataset}", note, series, x, y, table)]
    panels = tuple(
        Panel(dataset, charts.lines(series, x, y, title=dataset, width=NARROW, labels=False))
        for dataset, series in by_dataset
    )
    legend = tuple(dict.fromkeys((ln.label, ln.style) for _, each in by_dataset for ln in each))
    return [Figure("recall", title, note, panels=panels, legend=legend, numbers=table)]


def _cost_and_quality(contents: Contents, picture: Picture) -> list[Figure]:
    """Tokens against quality, over the questions that every strategy has."""
    datasets = [picture.dataset] if picture.dataset else list(contents.datasets)
    metric = picture.metric or _common(contents.deciding(each) for each in datasets)
    title = picture.label or "Cost against quality"
    dots: list[tuple[Method, int, Point, tuple[str, ...]]] = []
    asked = _asked_of_all(contents, datasets, metric)
    for style, method in enumerate(contents.methods):
        rows = [
            row
            for name in datasets
            for row in contents.of(name, method.name)
            if (name, row.question) in asked
        ]
        if not rows:
            continue
        quality = [row.metrics[metric] for row in rows]
        usage = [row.outcome.usage for row in rows]
        tokens = fmean(_tokens(each) for each in usage)
        calls = fmean(float(each.get("calls") or 0) for each in usage)
        seconds = fmean(row.outcome.seconds for row in rows)
        point = _mean(quality, tokens, contents.seed, _scale(metric))
        told = f"{_label(method)}: {_interval(point)} at {said(tokens)} tokens a question"
        numbers = (*_three(point), said(tokens), said(calls), said(seconds), _dollars(usage))
        dots.append((method, style, Point(tokens, point.y, point.low, point.high, told), numbers))
    if len(dots) < 2:
        why = "There are not two strategies with questions and a metric in common."
        return [Figure("cost", title, missing=why)]
    best = _front([point for _, _, point, _ in dots])
    drawn = [
        Dot(_label(method), point, style, free)
        for (method, style, point, _), free in zip(dots, best, strict=True)
    ]
    spread = [point.x for _, _, point, _ in dots if point.x > 0]
    wide_apart = len(spread) == len(dots) and max(spread) > 4 * min(spread)
    x = Axis("tokens a question, in and out", floor=0.0, logarithmic=wide_apart)
    y = Axis(f"{metric}, {_unit(metric)}", 0.0, 100.0 if _scale(metric) == 100 else None)
    head = ("strategy", metric, "low", "high", "tokens", "calls", "seconds", "USD", "front")
    body = [
        (_label(method), *numbers, "yes" if free else "")
        for (method, _, _, numbers), free in zip(dots, best, strict=True)
    ]
    over = f"Means over the {len(asked):,} questions that every strategy was asked."
    free = "The line joins those that no other beats on both: less to pay, or better answers."
    figure = Figure(
        f"cost-{picture.dataset}".strip("-"),
        title,
        f"{over} {free}",
        charts.cost_and_quality(drawn, x, y, title=title, width=WIDE),
        charts.cost_and_quality(drawn, x, y, title=title, width=NARROW),
        numbers=(head, *body),
    )
    return [figure]


def _front(points: Sequence[Point]) -> list[bool]:
    """Which points no other beats: none is as good for less, or better for as little."""
    return [
        not any(
            other.x <= point.x and other.y >= point.y and (other.x, other.y) != (point.x, point.y)
            for other in points
        )
        for point in points
    ]


def _attention_by_position(contents: Contents, picture: Picture) -> list[Figure]:
    """How the attention is shared among the documents given, a panel for each gold position."""
    title = picture.label or "Attention by position"
    found = attention(contents, picture.dataset)
    if not found:
        why = "No trace of this run has a strategy's attention to the documents given."
        return [Figure("attention", title, missing=why)]
    figures = []
    for each in found:
        named = title if len(found) == 1 else f"{title}: {each.label}"
        everything = [point for points in each.at.values() for point in points]
        panels = tuple(_attention_panel(each, gold, everything) for gold in each.at)
        head = ("gold at", "position", "z", "low", "high")
        body = [
            ("any" if gold is None else str(gold), f"{point.x:g}", *_three(point, 2))
            for gold, points in each.at.items()
            for point in points
        ]
        note = (
            "Attention of the question to each document, as z-scores within a question, "
            f"averaged over {each.questions:,} traces of {each.label}"
            f"{f' (of {each.traced:,})' if each.traced > each.questions else ''}. "
            "The gold document's position is marked; whiskers are 95 % intervals."
        )
        key = f"attention-{each.method}"
        figures.append(Figure(key, named, note, panels=panels, numbers=(head, *body)))
    return figures


def _attention_panel(each: Attention, gold: int | None, everything: Sequence[Point]) -> Panel:
    title = "Gold document wherever it is" if gold is None else f"Gold document at {gold}"
    drawing = charts.positions(
        Line(each.label, each.at[gold]),
        None if gold is None else float(gold),
        Axis("position in the prompt", whole=True),
        Axis("z"),
        title=f"Attention by position. {title}",
        reach_of=everything,
    )
    return Panel(title, drawing)


_DRAWN: Mapping[str, Callable[[Contents, Picture], list[Figure]]] = {
    "by-gold-position": _by_gold_position,
    "recall-at-k": _recall_at_k,
    "pareto": _cost_and_quality,
    "attention-by-position": _attention_by_position,
}


def verdict_bars(contents: Contents) -> Figure:
    """What became of the answers of each strategy."""
    counted = verdicts(contents)
    kinds = [kind for kind in Verdict if any(each[kind] for each in counted.values())]
    bars = [
        Bar(
            _label(method),
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
        wide=charts.stacked(bars, names, title=title, width=WIDE),
        narrow=charts.stacked(bars, names, title=title, width=NARROW),
        numbers=(head, *body),
    )


def comparison_panels(comparisons: Sequence[Comparison]) -> tuple[Panel, ...]:
    """For each column of the table, how far every strategy is from the best."""
    panels = []
    for each in comparisons:
        places = places_of(each.head.scale)
        rows = []
        for other in each.others:
            label = _label(other.method)
            told = (
                f"{label}: {said(other.value, places)} "
                f"[{said(other.low, places)}, {said(other.high, places)}], "
                f"p = {probability(other.p)}, n = {other.n:,}"
            )
            rows.append(
                charts.Difference(label, other.value, other.low, other.high, other.stars, told)
            )
        title = f"{each.head.dataset}: {each.head.label}"
        unit = f"difference from {_label(each.best)}"
        drawing = charts.differences(rows, title=f"{title}, {unit}", unit=unit)
        panels.append(Panel(title, drawing))
    return tuple(panels)


def probability(p: float) -> str:
    """A p-value as papers write it."""
    return "<.001" if p < 0.001 else f"{p:.3f}".removeprefix("0")


def _lines(
    key: str, title: str, note: str, series: Sequence[Line], x: Axis, y: Axis, numbers: Numbers
) -> Figure:
    wide = charts.lines(series, x, y, title=title, width=WIDE)
    narrow = charts.lines(series, x, y, title=title, width=NARROW, labels=False)
    legend = tuple((line.label, line.style) for line in series)
    return Figure(key, title, note, wide, narrow, legend=legend, numbers=numbers)


def _mean(values: Sequence[float], x: float, seed: int, scale: float) -> Point:
    low, high = bootstrap(list(values), seed)
    return Point(x, fmean(values) * scale, low * scale, high * scale)


def _scale(metric: str) -> float:
    """Shares are drawn as percentages; a judge's marks of 1 to 100, and what is counted, stand."""
    return 1.0 if metric.startswith(("loong", "p_len", "length")) else 100.0


def _unit(metric: str) -> str:
    return "%" if _scale(metric) == 100 else "mean"


def _common(metrics: Iterable[str]) -> str:
    """The metric that most data sets are decided by."""
    known = [metric for metric in metrics if metric]
    return max(known, key=known.count) if known else ""


def _asked_of_all(contents: Contents, datasets: Sequence[str], metric: str) -> set[tuple[str, str]]:
    """The questions that every strategy has the metric of."""
    found: set[tuple[str, str]] = set()
    for dataset in datasets:
        each = [set(contents.values(dataset, m.name, metric)) for m in contents.methods]
        found |= {(dataset, question) for question in set.intersection(*each)} if each else set()
    return found


def _tokens(usage: Mapping[str, object]) -> float:
    return sum(float(str(usage.get(name) or 0)) for name in ("input_tokens", "output_tokens"))


def _dollars(usage: Sequence[Mapping[str, object]]) -> str:
    prices = [each.get("cost_usd") for each in usage]
    if any(price is None for price in prices):
        return "?"
    return said(fmean(float(str(price)) for price in prices))


def _label(method: Method) -> str:
    return method.label or method.name


def _interval(point: Point) -> str:
    value, low, high = _three(point)
    return f"{value} [{low}, {high}]"


def _three(point: Point, places: int = 1) -> tuple[str, str, str]:
    return said(point.y, places), said(point.low, places), said(point.high, places)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
