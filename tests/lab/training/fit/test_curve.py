"""The curve of a training: written as it is measured, shortened when it is resumed, and drawn."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from colligate.core import Event
from colligate.core.events import Progressed
from colligate.errors import ColligateError
from colligate.lab.bench.charts import COLOURS
from colligate.lab.training.fitting import CURVE, draw_curve
from colligate.lab.training.trainer import TrainingObserver, read_curve

SVG = "{http://www.w3.org/2000/svg}"


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
    first, second = ({**point, "seconds": 0} for point in read_curve(tmp_path / CURVE))
    assert first == {"step": 0, "epoch": 0.0, "tokens": 0, "seconds": 0, "held_out_loss": 3.0}
    measured = {"loss": 2.0, "lr": 1e-4}
    assert second == {"step": 1, "epoch": 0.1, "tokens": 100, "seconds": 0, **measured}
    assert log.events[-1] == Progressed("training", 1, 9, "loss 2.000, held out 3.000")


def test_a_resumed_curve_has_what_its_checkpoint_logged(tmp_path: Path) -> None:
    first = Log(tmp_path / CURVE)
    for step in (1, 2, 3):
        first.add(step, loss=2.0)
    first.state.log_history[1]["seconds"] = 60.0
    again = Log(tmp_path / CURVE, first.state.log_history[:2])
    assert [point["step"] for point in read_curve(tmp_path / CURVE)] == [1, 2]
    again.add(3, loss=1.5)
    *_, last = read_curve(tmp_path / CURVE)
    assert (last["step"], last["loss"]) == (3, 1.5)
    assert last["seconds"] >= 60


@pytest.mark.parametrize("name", ["loss", "eval_loss"])
def test_a_loss_that_is_not_a_number_ends_the_training(tmp_path: Path, name: str) -> None:
    with pytest.raises(ColligateError, match="the loss of step 4 is not a number: nan"):
        Log(tmp_path / CURVE).add(4, **{name: float("nan")})


def test_both_losses_are_drawn_and_many_steps_as_means() -> None:
    learnt = [{"step": step, "loss": 1.0 + step % 2} for step in range(1, 10_001)]
    held_out = [{"step": step, "held_out_loss": 3.0} for step in (0, 9)]
    drawn = ElementTree.fromstring(draw_curve([*held_out, *learnt], "A <curve> & its title"))
    assert [each.text for each in drawn.iter(f"{SVG}title")] == ["A <curve> & its title"]
    texts = [each.text for each in drawn.iter(f"{SVG}text")]
    assert {"training", "held out", "step", "loss (nats a token)"} <= set(texts)
    first, second = (
        sum(COLOURS[style] in each.get("style", "") for each in drawn.iter(f"{SVG}use"))
        for style in (0, 1)
    )
    assert (40 <= first <= 61, second) == (True, 2 + 1)  # and one in the legend
    assert draw_curve([], "empty") == ""
