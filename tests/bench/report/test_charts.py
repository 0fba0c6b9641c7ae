"""Charts are valid XML inside their view box, whatever the numbers are."""

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from colligate.bench.report import bars, charts
from colligate.bench.report.bars import Bar, Difference
from colligate.bench.report.charts import NARROW, WIDE, Axis, Line, Point
from colligate.bench.report.scales import Scale, log_reach, reach, spread
from colligate.bench.report.scatter import Dot, scattered
from colligate.bench.report.svg import FONT, shortened, text_width

numbers = st.one_of(
    st.floats(),  # infinite ones and NaN among them
    st.floats(-1e3, 1e3),
    st.floats(0, 1),
    st.sampled_from([0.0, 1.0, 50.0, 100.0, math.nan, math.inf, -math.inf, 1e300, 5e-324]),
)
# Texts of anything at all, such as a control character or half a surrogate pair.
texts = st.text(st.characters(codec=None), max_size=30)
points = st.builds(Point, numbers, numbers, st.none() | numbers, st.none() | numbers, title=texts)
lines = st.builds(
    Line,
    texts,
    st.lists(points, max_size=6).map(tuple),
    style=st.integers(0, 20),
)
axes = st.builds(
    Axis,
    texts,
    floor=st.sampled_from([None, 0.0]),
    ceiling=st.sampled_from([None, 100.0]),
    logarithmic=st.booleans(),
    whole=st.booleans(),
)
widths = st.sampled_from([WIDE, NARROW])


def checked(drawing: str) -> etree._Element:
    """The drawing, which must be XML whose every coordinate is in its view box."""
    root = etree.fromstring(drawing.encode())
    left, top, width, height = map(float, root.attrib["viewBox"].split())
    assert (left, top) == (0, 0)
    # A mark is drawn around its place, and may reach over an edge by its own size.
    mark = 8
    for element in root.iter():
        drawn = [value for name, value in element.attrib.items() if name != "aria-label"]
        assert "nan" not in " ".join(drawn).lower().replace("name", "")
        for name, value in element.attrib.items():
            if name in ("x", "x1", "x2", "cx"):
                assert -mark <= float(value) <= width + mark
            if name in ("y", "y1", "y2", "cy"):
                assert -mark <= float(value) <= height + mark
            if name == "points":
                for pair in value.split():
                    x, y = map(float, pair.split(","))
                    assert -mark <= x <= width + mark
                    assert -mark <= y <= height + mark
        if element.tag.endswith("}rect"):
            assert float(element.attrib["x"]) + float(element.attrib["width"]) <= width + 0.1
        if element.tag.endswith("}text"):
            begin = float(element.attrib["x"])
            said = text_width(element.text or "")
            begin -= {"start": 0, "middle": said / 2, "end": said}[element.attrib["text-anchor"]]
            assert begin >= -1
            assert begin + said <= width + 1
    return root


@settings(max_examples=150, deadline=None)
@given(st.lists(lines, max_size=12), axes, axes, texts, widths, st.booleans())
def test_lines(
    series: list[Line], x: Axis, y: Axis, title: str, width: float, labels: bool
) -> None:
    checked(charts.lines(series, x, y, title=title, width=width, labels=labels))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.builds(Dot, texts, points, st.integers(0, 20), st.booleans()), max_size=12),
    axes,
    axes,
    texts,
    widths,
)
def test_cost_and_quality(dots: list[Dot], x: Axis, y: Axis, title: str, width: float) -> None:
    checked(scattered(dots, x, y, title=title, width=width))


@settings(max_examples=100, deadline=None)
@given(lines, st.none() | numbers, axes, axes, texts, st.lists(points, max_size=5))
def test_positions(
    line: Line, marked: float | None, x: Axis, y: Axis, title: str, others: list[Point]
) -> None:
    checked(charts.positions(line, marked, x, y, title=title, reach_of=others))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.builds(Bar, texts, st.tuples(*[st.integers(0, 10**9)] * 3), texts), max_size=6),
    texts,
    widths,
)
def test_stacked(rows: list[Bar], title: str, width: float) -> None:
    checked(bars.stacked(rows, ["right", "wrong", "failed"], title=title, width=width))


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(
            Difference, texts, numbers, numbers, numbers, st.sampled_from(["", "***"]), texts
        ),
        max_size=8,
    ),
    texts,
    texts,
)
def test_differences(rows: list[Difference], title: str, unit: str) -> None:
    checked(bars.differences(rows, title=title, unit=unit))


@pytest.mark.parametrize(
    "draw",
    [
        lambda: charts.lines([], Axis("x"), Axis("y"), title="t"),
        lambda: scattered([], Axis("x"), Axis("y"), title="t"),
        lambda: bars.stacked([], ["right"], title="t"),
        lambda: bars.differences([], title="t"),
        lambda: charts.lines(
            [Line("only nonsense", (Point(1, math.nan),))], Axis("x"), Axis("y"), title="t"
        ),
    ],
)
def test_a_chart_of_nothing_says_so(draw: Callable[[], str]) -> None:
    assert "nothing to draw" in "".join(checked(draw()).itertext())


def test_a_higher_value_stands_higher_and_a_later_place_further_right() -> None:
    drawn = charts.lines(
        [Line("a", (Point(1, 20.0), Point(5, 60.0), Point(10, 40.0)))],
        Axis("place", whole=True),
        Axis("%", 0, 100),
        title="t",
    )
    [through] = checked(drawn).xpath("//*[@class='stroke']/@points")
    (x1, y1), (x2, y2), (x3, y3) = (map(float, p.split(",")) for p in str(through).split())
    assert x1 < x2 < x3
    assert y2 < y3 < y1  # downwards in a drawing
    assert (x2 - x1) / (x3 - x1) == pytest.approx(4 / 9, abs=0.01)


def test_bars_are_as_long_as_their_counts() -> None:
    drawn = bars.stacked([Bar("a", (30, 10), "40")], ["right", "wrong"], title="t")
    right, wrong = (float(w) for w in checked(drawn).xpath("//*[local-name()='rect']/@width"))
    assert right / wrong == pytest.approx(3, abs=0.05)


def test_the_front_joins_only_the_best() -> None:
    dots = [
        Dot("cheap", Point(100, 40), 0, True),
        Dot("beaten", Point(200, 30), 1),
        Dot("good", Point(300, 70), 2, True),
    ]
    drawn = scattered(dots, Axis("tokens"), Axis("%"), title="t")
    [through] = checked(drawn).xpath("//*[@class='front']/@points")
    # From the cheap one along, up to the good one, and on to the edge.
    assert len(str(through).split()) == 4


def test_styles_differ_by_their_marks_not_by_colour_alone() -> None:
    series = [Line(f"s{style}", (Point(1, style),), style) for style in range(16)]
    root = checked(charts.lines(series, Axis("x"), Axis("y"), title="t", labels=False))
    marks = root.xpath("//*[contains(@class, 'mark')]")
    drawn = {(_outline(mark[-1]), "open" in mark.attrib["class"].split()) for mark in marks}
    assert len(marks) == len(drawn) == 16


def _outline(mark: etree._Element) -> tuple[tuple[float, float], ...]:
    """The corners of a mark from its first one; none of a circle."""
    corners = [tuple(map(float, pair.split(","))) for pair in mark.attrib.get("points", "").split()]
    return tuple((round(x - corners[0][0]), round(y - corners[0][1])) for x, y in corners)


@given(st.lists(st.floats(0, 300), max_size=12), st.floats(1, 30), st.just(0.0), st.just(300.0))
def test_labels_keep_apart_in_their_order(
    places: list[float], gap: float, low: float, high: float
) -> None:
    moved = spread(places, gap, low, high)
    assert all(low - 1e-6 <= place <= high + 1e-6 for place in moved)
    order = sorted(range(len(places)), key=lambda n: (places[n], n))
    room = min(gap, (high - low) / max(1, len(places) - 1))
    for above, below in pairwise(order):
        assert moved[below] - moved[above] >= room - 1e-6


def test_ticks_say_what_they_are() -> None:
    assert [label for _, label in Scale(-0.5, 0.5, 0, 1).ticks(4)] == [
        *("−0.50", "−0.25", "0.00", "0.25", "0.50")
    ]
    assert [label for _, label in Scale(0, 100, 0, 1).ticks()] == [
        "0",
        "20",
        "40",
        "60",
        "80",
        "100",
    ]
    logarithmic = Scale(900, 30_000, 0, 1, True).ticks()
    assert [label for _, label in logarithmic] == ["1,000", "2,000", "5,000", "10k", "20k"]


def test_labels_that_have_room_stay_where_they_are() -> None:
    assert spread([10.0, 50.0, 90.0], 15, 0, 100) == [10.0, 50.0, 90.0]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=8))
def test_ticks_are_few_round_and_in_reach(values: list[float]) -> None:
    low, high = reach(values)
    assert low <= min(values) + 1e-6
    assert high >= max(values) - 1e-6
    ticks = Scale(low, high, 0, 100).ticks()
    assert 2 <= len(ticks) <= 9
    assert all(low - 1e-6 * abs(low) <= value <= high + 1e-6 * abs(high) for value, _ in ticks)
    assert len({label for _, label in ticks}) == len(ticks)


@given(st.lists(st.floats(1e-3, 1e9), min_size=1, max_size=8))
def test_a_logarithmic_scale_has_all_numbers(values: list[float]) -> None:
    low, high = log_reach(values)
    scale = Scale(low, high, 0, 100, True)
    assert all(0 < scale(value) < 100 for value in values)
    assert all(low <= value <= high for value, _ in scale.ticks())


@given(st.text(max_size=50), st.floats(1, 200))
def test_a_cut_text_fits(text: str, width: float) -> None:
    cut = shortened(text, width, FONT)
    assert text_width(cut, FONT) <= width
    assert cut == text or cut.endswith("…") or not cut
