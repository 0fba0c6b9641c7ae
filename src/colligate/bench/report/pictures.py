"""The suite's pictures: by gold position, against k, cost against quality, attention."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from colligate.bench.report import charts
from colligate.bench.report.attention import Attention, attention
from colligate.bench.report.charts import NARROW, Axis, Line, Point
from colligate.bench.report.contents import Contents
from colligate.bench.report.cost import cost_and_quality
from colligate.bench.report.figures import (
    Figure,
    Panel,
    across,
    common,
    interval,
    key_of,
    label_of,
    line_figure,
    mean_of,
    share_axis,
)
from colligate.bench.suites import Picture, PictureKind

_ALWAYS: tuple[PictureKind, ...] = ("by-gold-position", "recall-at-k", "pareto")


def pictures(contents: Contents) -> tuple[Figure, ...]:
    """The suite's pictures in its order, then those that this run has the numbers for."""
    asked = contents.suite.pictures
    found = [figure for picture in asked for figure in _DRAWN[picture.kind](contents, picture)]
    for kind in _ALWAYS:
        if all(picture.kind != kind for picture in asked):
            more = _DRAWN[kind](contents, Picture(kind))
            found += [figure for figure in more if not figure.missing]
    return tuple(found)


def _by_gold_position(contents: Contents, picture: Picture) -> list[Figure]:
    """Quality by the place of the document that holds the answer."""
    datasets = [picture.dataset] if picture.dataset else list(contents.datasets)
    metric = picture.metric or common(contents.deciding(each) for each in datasets)
    title = picture.label or f"{_capital(metric or 'quality')} by the place of the gold document"
    scale = contents.scale(metric)
    series = []
    for style, method in enumerate(contents.methods):
        at: dict[int, list[float]] = {}
        for name in datasets:
            values = contents.asked(name, method.name, metric)
            for row in contents.of(name, method.name):
                if row.gold_at is not None and (name, row.question) in values:
                    at.setdefault(row.gold_at, []).append(values[name, row.question])
        points = []
        for place in sorted(at):
            point = mean_of(at[place], place + 1, contents.seed, scale)
            told = f"{label_of(method)}, gold at {place + 1}: {interval(point)}"
            points.append(replace(point, title=f"{told}, n = {len(at[place])}"))
        if points:
            series.append(Line(label_of(method), tuple(points), style))
    if len({point.x for line in series for point in line.points}) < 2:
        why = "No data set of this run moves the gold document about."
        return [Figure(key_of(picture), title, missing=why)]
    x = Axis("place of the gold document", whole=True)
    note = "Whiskers are 95 % intervals, by bootstrap over the questions."
    numbers = across({line.label: line.points for line in series})
    return [line_figure(key_of(picture), title, note, series, x, share_axis(scale), numbers)]


_AT_K = re.compile(r"(?P<stem>\w+)_at_(?P<k>\d+)")


def _recall_at_k(contents: Contents, picture: Picture) -> list[Figure]:
    """Recall, or another measure of the first k that a search returned, by data set."""
    stem = picture.metric or "recall"
    title = picture.label or f"{_capital(stem)} against k"
    by_dataset: dict[str, list[Line]] = {}
    for dataset in [picture.dataset] if picture.dataset else contents.datasets:
        measured = (_AT_K.fullmatch(name) for name in contents.measured(dataset))
        cuts = sorted(int(match["k"]) for match in measured if match and match["stem"] == stem)
        lines = (_against_k(contents, dataset, style, stem, cuts) for style in _styles(contents))
        series = [line for line in lines if line.points]
        if series and len(cuts) > 1:
            by_dataset[dataset] = series
    if not by_dataset:
        why = "No strategy of this run searched, or this was not measured."
        return [Figure(key_of(picture), title, missing=why)]
    x = Axis("documents looked at (k)", logarithmic=True, whole=True)
    y = share_axis(100.0)
    note = "Of the documents that searches returned, in the order in which they were first found."
    if len(by_dataset) == 1:
        [(dataset, series)] = by_dataset.items()
        numbers = across({line.label: line.points for line in series})
        title = f"{title}, {dataset}"
        return [line_figure(key_of(picture), title, note, series, x, y, numbers)]
    numbers = across(
        {f"{name}, {ln.label}": ln.points for name, each in by_dataset.items() for ln in each}
    )
    panels = tuple(
        Panel(dataset, charts.lines(series, x, y, title=dataset, width=NARROW, labels=False))
        for dataset, series in by_dataset.items()
    )
    lines_of_all = (line for series in by_dataset.values() for line in series)
    legend = tuple(dict.fromkeys((line.label, line.style) for line in lines_of_all))
    key = key_of(picture)
    return [Figure(key, title, note, panels=panels, legend=legend, numbers=numbers)]


def _styles(contents: Contents) -> range:
    return range(len(contents.methods))


def _against_k(
    contents: Contents, dataset: str, style: int, stem: str, cuts: Sequence[int]
) -> Line:
    method = contents.methods[style]
    points = []
    for k in cuts:
        values = list(contents.asked(dataset, method.name, f"{stem}_at_{k}").values())
        if values:
            point = mean_of(values, k, contents.seed, 100.0)
            told = f"{label_of(method)}, first {k}: {interval(point)}, n = {len(values)}"
            points.append(replace(point, title=told))
    return Line(label_of(method), tuple(points), style)


def _attention_by_position(contents: Contents, picture: Picture) -> list[Figure]:
    """How the attention is shared among the documents given, a panel for each gold position."""
    title = picture.label or "Attention by position"
    found = attention(contents, picture.dataset)
    if not found:
        why = "No trace of this run has a strategy's attention to the documents given."
        return [Figure(key_of(picture), title, missing=why)]
    figures = []
    for each in found:
        named = title if len(found) == 1 else f"{title}: {each.label}"
        everything = [point for points in each.at.values() for point in points]
        panels = tuple(_attention_panel(each, gold, everything) for gold in each.at)
        numbers = across({_gold(gold): points for gold, points in each.at.items()}, 2)
        note = (
            "Attention of the question to each document, as z-scores within a question, "
            f"averaged over {each.questions:,} traces of {each.label}"
            f"{f' (of {each.traced:,})' if each.traced > each.questions else ''}. "
            "The gold document's position is marked; whiskers are 95 % intervals."
        )
        key = key_of(picture, each.method)
        figures.append(Figure(key, named, note, panels=panels, numbers=numbers))
    return figures


def _attention_panel(each: Attention, gold: int | None, everything: Sequence[Point]) -> Panel:
    title = _gold(gold)
    drawing = charts.positions(
        Line(each.label, each.at[gold]),
        None if gold is None else float(gold),
        Axis("position in the prompt", whole=True),
        Axis("z"),
        title=f"Attention by position. {title}",
        reach_of=everything,
    )
    return Panel(title, drawing)


def _gold(place: int | None) -> str:
    return "Gold document wherever it is" if place is None else f"Gold document at {place}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


_DRAWN: Mapping[PictureKind, Callable[[Contents, Picture], list[Figure]]] = {
    "by-gold-position": _by_gold_position,
    "recall-at-k": _recall_at_k,
    "pareto": cost_and_quality,
    "attention-by-position": _attention_by_position,
}
