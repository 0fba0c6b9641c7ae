"""The curve of a training: written as it is measured, shortened when it is resumed, and drawn."""

from __future__ import annotations

import json
import threading
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colligate.core import Event
from colligate.core.events import Progressed
from colligate.errors import ColligateError, FaultyRecord
from colligate.lab.bench.charts import COLOURS
from colligate.lab.training.fitting import CURVE, draw_curve
from colligate.lab.training.trainer import CurvePoint, TrainingObserver, read_curve

SVG = "{http://www.w3.org/2000/svg}"


def learnt(step: int, loss: float = 2.0) -> CurvePoint:
    return CurvePoint(step, step / 10, step * 100, float(step), loss=loss, lr=1e-4)


def held_out(step: int, loss: float = 3.0) -> CurvePoint:
    return CurvePoint(step, step / 10, step * 100, float(step), held_out_loss=loss)


POINTS = [held_out(0), learnt(1), learnt(2), held_out(2), learnt(3)]


class Log:
    """A training's log history and its observer."""

    def __init__(self, curve: Path, entries: list[dict[str, Any]] | None = None) -> None:
        self.events: list[Event] = []
        self.state = SimpleNamespace(
            log_history=list(entries or ()), is_world_process_zero=True, global_step=0, max_steps=9
        )
        self.observer = TrainingObserver(None, curve, threading.Event(), self.events.append)
        self.observer.on_train_begin(None, self.state, None)

    def add(self, step: int, **logs: float) -> None:
        entry = {**logs, "step": step, "epoch": step / 10, "num_input_tokens_seen": step * 100}
        self.state.global_step = step
        self.state.log_history.append(entry)
        self.observer.on_log(None, self.state, None)


def test_points_are_on_disk_as_they_are_measured(tmp_path: Path) -> None:
    log = Log(tmp_path / CURVE)
    log.add(0, eval_loss=3.0)
    log.add(1, loss=2.0, learning_rate=1e-4)
    log.add(1, train_runtime=7.0)  # not a measurement
    found = [replace(point, seconds=point.step) for point in read_curve(tmp_path / CURVE)]
    assert found == POINTS[:2]
    first, second = map(json.loads, (tmp_path / CURVE).read_text("utf-8").splitlines())
    assert set(first) == {"step", "epoch", "tokens", "seconds", "held_out_loss"}
    assert set(second) == {"step", "epoch", "tokens", "seconds", "loss", "lr"}
    assert log.events[-1] == Progressed("training", 1, 9, "loss 2.000, held out 3.000")


def test_a_resumed_curve_has_what_its_checkpoint_logged(tmp_path: Path) -> None:
    first = Log(tmp_path / CURVE)
    for step in (1, 2, 3):
        first.add(step, loss=2.0)
    first.state.log_history[1]["seconds"] = 60.0
    again = Log(tmp_path / CURVE, first.state.log_history[:2])
    assert [point.step for point in read_curve(tmp_path / CURVE)] == [1, 2]
    again.add(3, loss=1.5)
    *_, last = read_curve(tmp_path / CURVE)
    assert (last.step, last.loss) == (3, 1.5)
    assert last.seconds >= 60


@pytest.mark.parametrize("name", ["loss", "eval_loss"])
def test_a_loss_that_is_not_a_number_ends_the_training(tmp_path: Path, name: str) -> None:
    with pytest.raises(ColligateError, match="the loss of step 4 is not a number: nan"):
        Log(tmp_path / CURVE).add(4, **{name: float("nan")})


@pytest.mark.parametrize("line", ["no JSON", "[1]", '{"step": 1}', '{"stp": 1}'])
def test_faulty_lines_are_reported_and_a_torn_last_one_is_not(tmp_path: Path, line: str) -> None:
    file = tmp_path / CURVE
    assert read_curve(file) == []
    whole = json.dumps(POINTS[0].to_json())
    file.write_text(f'{whole}\n{{"step": 1, "epo', "utf-8")
    assert read_curve(file) == POINTS[:1]
    file.write_text(f"{line}\n", "utf-8")
    with pytest.raises(FaultyRecord, match=r"line 1 of .*curve\.jsonl is not a line of a curve"):
        read_curve(file)


def test_both_losses_are_drawn() -> None:
    drawn = ElementTree.fromstring(draw_curve(POINTS, "A <curve> & its title"))
    assert [each.text for each in drawn.iter(f"{SVG}title")] == ["A <curve> & its title"]
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    assert {"training", "held out", "step", "loss (nats a token)"} <= set(texts)
    assert [count_marks(drawn, style) for style in (0, 1)] == [3 + 1, 2 + 1]  # the legend


def test_many_steps_are_drawn_as_means_and_impossible_values_left_out() -> None:
    many = [learnt(step, 1.0 + step % 2) for step in range(1, 10_001)]
    assert 40 <= count_marks(ElementTree.fromstring(draw_curve(many, "many")), 0) <= 60
    assert draw_curve([], "empty") == ""
    absurd = [replace(learnt(1), loss=float("inf")), learnt(2)]
    assert count_marks(ElementTree.fromstring(draw_curve(absurd, "absurd")), 0) == 1


def count_marks(drawn: ElementTree.Element, style: int) -> int:
    """How many points a line has in the drawing."""
    return sum(COLOURS[style] in each.get("style", "") for each in drawn.iter(f"{SVG}use"))
