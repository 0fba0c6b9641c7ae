"""Cost against quality: what each strategy took, and those that none beats on both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from colligate.bench.report.charts import NARROW, WIDE, Axis, Point
from colligate.bench.report.contents import Contents
from colligate.bench.report.figures import (
    Figure,
    common,
    interval,
    key_of,
    label_of,
    mean_of,
    share_axis,
)
from colligate.bench.report.numbers import said, several
from colligate.bench.report.scatter import Dot, scattered
from colligate.bench.suites import Method, Picture


def cost_and_quality(contents: Contents, picture: Picture) -> list[Figure]:
    """Tokens against quality, over the questions that every strategy has."""
    datasets = [picture.dataset] if picture.dataset else list(contents.datasets)
    metric = picture.metric or common(contents.deciding(each) for each in datasets)
    title = picture.label or "Cost against quality"
    scale = contents.scale(metric)
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
        quality = [
            value
            for name in datasets
            for key, value in contents.asked(name, method.name, metric).items()
            if key in asked
        ]
        usage = [row.outcome.usage for row in rows]
        tokens = fmean(_tokens(each) for each in usage)
        calls = fmean(float(each.get("calls") or 0) for each in usage)
        seconds = [row.outcome.seconds for row in rows if not row.outcome.usage.get("remembered")]
        point = mean_of(quality, tokens, contents.seed, scale)
        told = f"{label_of(method)}: {interval(point)} at {said(tokens)} tokens a question"
        numbers = (interval(point), said(tokens), said(calls), _mean(seconds), _dollars(usage))
        dots.append((method, style, Point(tokens, point.y, point.low, point.high, told), numbers))
    if len(dots) < 2:
        why = "There are not two strategies with questions and a metric in common."
        return [Figure(key_of(picture), title, missing=why)]
    best = _front([point for _, _, point, _ in dots])
    drawn = [
        Dot(label_of(method), point, style, free)
        for (method, style, point, _), free in zip(dots, best, strict=True)
    ]
    spread = [point.x for _, _, point, _ in dots if point.x > 0]
    wide_apart = len(spread) == len(dots) and max(spread) > 4 * min(spread)
    x = Axis("tokens a question, in and out", floor=0.0, logarithmic=wide_apart)
    y = share_axis(scale, f"{metric}, %")
    head = ("strategy", metric, "tokens", "calls", "seconds", "USD", "front")
    body = [
        (label_of(method), *numbers, "yes" if free else "")
        for (method, _, _, numbers), free in zip(dots, best, strict=True)
    ]
    over = f"Means over the {several(len(asked), 'question')} that every strategy was asked."
    free = "The line joins those that no other beats on both: less to pay, or better answers."
    figure = Figure(
        key_of(picture),
        title,
        f"{over} {free}",
        scattered(drawn, x, y, title=title, width=WIDE),
        scattered(drawn, x, y, title=title, width=NARROW),
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


def _asked_of_all(contents: Contents, datasets: Sequence[str], metric: str) -> set[tuple[str, str]]:
    """The questions that every strategy has the metric of."""
    found: set[tuple[str, str]] = set()
    there = [m for m in contents.methods if any(contents.of(name, m.name) for name in datasets)]
    for dataset in datasets:
        each = [set(contents.asked(dataset, m.name, metric)) for m in there]
        found |= set.intersection(*each) if each else set()
    return found


def _tokens(usage: Mapping[str, object]) -> float:
    return sum(float(str(usage.get(name) or 0)) for name in ("input_tokens", "output_tokens"))


def _mean(values: Sequence[float]) -> str:
    return said(fmean(values)) if values else ""


def _dollars(usage: Sequence[Mapping[str, object]]) -> str:
    prices = [each.get("cost_usd") for each in usage]
    if any(price is None for price in prices):
        return "?"
    return said(fmean(float(str(price)) for price in prices))
