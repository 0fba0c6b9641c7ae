"""The curve of a training: on disk as it is measured, cut where it is gone on from, and drawn."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import pytest

from colligate.bench.figures import COLOURS
from colligate.errors import FaultyRecord
from colligate.training.fit import CURVES_FILE, Curve, Measured, picture, read_curve

SVG = "{http://www.w3.org/2000/svg}"


def learnt(step: int, loss: float = 2.0) -> Measured:
    return Measured(step, step / 10, step * 100, float(step), loss=loss, lr=1e-4)


def kept_aside(step: int, loss: float = 3.0) -> Measured:
    return Measured(step, step / 10, step * 100, float(step), held_out_loss=loss)


MEASURED = [kept_aside(0), learnt(1), learnt(2), kept_aside(2), learnt(3)]


def test_lines_are_there_as_they_are_measured(tmp_path: Path) -> None:
    curve = Curve(tmp_path)
    for count, measured in enumerate(MEASURED, 1):
        curve.add(measured)
        assert read_curve(tmp_path / CURVES_FILE) == MEASURED[:count] == curve.measured
    first, second, *_ = (tmp_path / CURVES_FILE).read_text("utf-8").splitlines()
    assert set(json.loads(first)) == {"step", "epoch", "tokens", "seconds", "held_out_loss"}
    assert set(json.loads(second)) == {"step", "epoch", "tokens", "seconds", "loss", "lr"}


def test_what_comes_after_the_checkpoint_is_forgotten(tmp_path: Path) -> None:
    curve = Curve(tmp_path)
    for measured in MEASURED:
        curve.add(measured)
    again = Curve(tmp_path, 2)
    assert again.seconds == 2.0
    assert read_curve(tmp_path / CURVES_FILE) == MEASURED[:4]
    again.add(learnt(3, 1.5))
    assert read_curve(tmp_path / CURVES_FILE) == [*MEASURED[:4], learnt(3, 1.5)]
    assert Curve(tmp_path).measured == read_curve(tmp_path / CURVES_FILE) == []


def test_a_torn_last_line(tmp_path: Path) -> None:
    Curve(tmp_path).add(MEASURED[0])
    with (tmp_path / CURVES_FILE).open("a", encoding="utf-8") as out:
        out.write('{"step": 1, "epo')
    assert read_curve(tmp_path / CURVES_FILE) == MEASURED[:1]


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"step": 1}', '{"stp": 1}'])
def test_a_line_that_is_none(tmp_path: Path, line: str) -> None:
    (tmp_path / CURVES_FILE).write_text(f"{line}\n", "utf-8")
    with pytest.raises(FaultyRecord, match=r"line 1 of .*curve\.jsonl is not a line of a curve"):
        read_curve(tmp_path / CURVES_FILE)


def test_no_curve_yet(tmp_path: Path) -> None:
    assert read_curve(tmp_path / CURVES_FILE) == []


def test_both_losses_are_drawn() -> None:
    drawn = ElementTree.fromstring(picture(MEASURED, "A <curve> & its title"))
    assert [each.text for each in drawn.iter(f"{SVG}title")] == ["A <curve> & its title"]
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    assert {"training", "held out", "step", "loss (nats a token)"} <= set(texts)
    assert [count_marks(drawn, style) for style in (0, 1)] == [3 + 1, 2 + 1]  # the legend


def test_many_steps_are_drawn_as_means() -> None:
    many = [learnt(step, 1.0 + step % 2) for step in range(1, 10_001)]
    drawn = ElementTree.fromstring(picture(many, "many"))
    assert 40 <= count_marks(drawn, 0) <= 60


def test_what_cannot_be_drawn_is_left_out() -> None:
    assert picture([], "empty") == ""
    absurd = [replace(learnt(1), loss=float("inf")), learnt(2)]
    assert count_marks(ElementTree.fromstring(picture(absurd, "absurd")), 0) == 1


def count_marks(drawn: ElementTree.Element, style: int) -> int:
    """How many points a line has in the drawing."""
    return sum(COLOURS[style] in each.get("style", "") for each in drawn.iter(f"{SVG}use"))
