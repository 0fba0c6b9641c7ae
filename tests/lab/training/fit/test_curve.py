"""The curve of a training: a loss that is no number ends it, and it is drawn."""

from __future__ import annotations

import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from types import SimpleNamespace

import pytest

from colligate.errors import ColligateError
from colligate.lab.bench.charts import COLOURS
from colligate.lab.training.fitting import CURVE, draw_curve
from colligate.lab.training.trainer import TrainingObserver

SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", ["loss", "eval_loss"])
def test_a_loss_that_is_not_a_number_ends_the_training(tmp_path: Path, name: str) -> None:
    entry = {name: float("nan"), "step": 4, "epoch": 0.4, "num_input_tokens_seen": 400}
    state = SimpleNamespace(log_history=[entry], is_world_process_zero=True, global_step=4)
    observer = TrainingObserver(None, tmp_path / CURVE, threading.Event(), print)
    with pytest.raises(ColligateError, match="the loss of step 4 is not a number: nan"):
        observer.on_log(None, state, None)


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
