"""Figures are valid SVG whatever their numbers are, and the same each time."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from colligate.lab.bench.figures import (
    COLOURS,
    Chart,
    Panel,
    Point,
    Series,
    draw_lines,
)

pytest.importorskip("matplotlib")

HOSTILE = '<script>"&$x^2$ ü 问题 \x1f\ud800'
SHOWN = '<script>"&$x^2$ ü 问题'

numbers = st.one_of(
    st.floats(), st.floats(-1e3, 1e3), st.sampled_from([0.0, math.nan, math.inf, 1e300, 5e-324])
)
ends = st.none() | numbers
texts = st.text(st.characters(codec=None), max_size=10)
points = st.builds(Point, st.floats(1, 1e6), numbers, ends, ends)
series = st.builds(Series, texts, st.lists(points, max_size=3).map(tuple), st.integers(0, 20))
panels = st.builds(Panel, texts, st.lists(series, max_size=2).map(tuple))
CHART = Chart("step", "loss")


def parse(svg: str) -> tuple[etree._Element, set[str]]:
    """The drawing and the texts in it."""
    root = etree.fromstring(svg.encode())
    assert root.tag.endswith("}svg")
    return root, {(each.text or "").strip() for each in root.iter("{*}text")}


@settings(max_examples=15)
@given(
    st.lists(panels, max_size=2),
    st.sampled_from(
        [CHART, replace(CHART, logarithmic=True), replace(CHART, groups=(HOSTILE, "b"))]
    ),
)
def test_any_numbers_are_drawn_or_left_out(drawn: list[Panel], chart: Chart) -> None:
    if svg := draw_lines(drawn, chart):
        parse(svg)


def test_a_higher_value_is_higher_a_later_place_further_right_and_labels_are_text() -> None:
    line = Series(HOSTILE, (Point(1, 20.0), Point(5, 60.0), Point(10, 40.0)))
    chart = replace(CHART, limits=(0.0, 100.0))
    root, shown = parse(draw_lines([Panel("", (line, Series("b", (Point(1, 2.0),), 1)))], chart))
    assert {SHOWN, "b", "step", "loss"} <= shown
    marks = [each for each in root.iter("{*}use") if COLOURS[0] in each.get("style", "")]
    places = [(float(each.get("x", "")), float(each.get("y", ""))) for each in marks]
    (x1, y1), (x2, y2), (x3, y3) = places[:3]
    assert x1 < x2 < x3
    assert y2 < y3 < y1  # downwards in a drawing
    assert (x2 - x1) / (x3 - x1) == pytest.approx(4 / 9, abs=0.01)


def test_nothing_is_drawn_of_nothing_or_without_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    nonsense = Panel("", (Series("a", (Point(1, math.nan),)),))
    assert draw_lines([], CHART) == draw_lines([nonsense], CHART) == ""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert draw_lines([Panel("", (Series("a", (Point(1, 2.0),)),))], CHART) == ""
