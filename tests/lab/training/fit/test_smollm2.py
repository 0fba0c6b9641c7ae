"""A real model learns, and goes on where it was stopped."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from colligate.core import Event
from colligate.core.events import Progressed
from colligate.lab.training import fit
from colligate.lab.training.samples import HELD_OUT, TRAIN, Sample, write_samples
from colligate.lab.training.trainer import read_curve
from colligate.models import Message
from colligate.models.hf.model import HFModel
from support.models import ask

pytestmark = [pytest.mark.model, pytest.mark.real]

QUICK = (
    *("steps=6", "global_batch=1", "learning_rate=2e-3", "save_every=3", "evaluate_every=6"),
    "precision=float32",
)
RIVERS = ("Avon", "Bure", "Cam", "Dee", "Exe", "Frome", "Gade", "Hamble")


def asked(river: str) -> tuple[Message, ...]:
    text = f"1: The {river} has otters.\n2: Bridges are old.\nWhat lives in the {river}?"
    return (Message("user", text),)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    made = [
        Sample(river, "router", (*asked(river), Message("assistant", "ANSWER 1")))
        for river in RIVERS
    ]
    write_samples(folder / TRAIN, made[:6])
    write_samples(folder / HELD_OUT, made[6:])
    return folder


@pytest.fixture(scope="module")
def base(smollm2_folder: Path) -> str:
    return f"hf:{smollm2_folder}"


async def test_it_learns_and_goes_on(base: str, data: Path, tmp_path: Path) -> None:
    whole = fit("rdr2-router-small", data, base, tmp_path / "whole", QUICK)
    assert whole.finished
    assert whole.held_out_before is not None
    assert whole.held_out_after is not None
    assert whole.held_out_after < whole.held_out_before / 2

    def stop(event: Event) -> None:
        if isinstance(event, Progressed) and event.done == 3:
            os.kill(os.getpid(), signal.SIGINT)

    assert not fit("rdr2-router-small", data, base, tmp_path / "two", QUICK, stop).finished
    gone_on = fit("rdr2-router-small", data, base, tmp_path / "two", QUICK)
    assert gone_on.loss == pytest.approx(whole.loss, rel=1e-3)
    assert gone_on.held_out_after == pytest.approx(whole.held_out_after, rel=1e-3)
    steps = [
        each["step"] for each in read_curve(tmp_path / "two" / "curve.jsonl") if "loss" in each
    ]
    assert steps == [1, 2, 3, 4, 5, 6]

    model = HFModel(base.removeprefix("hf:"), name=base, context_tokens=1024, dtype="float32")
    adapted = await model.with_adapter(whole.out)
    reply = await ask(adapted, asked("Itchen"), max_tokens=8)
    assert reply.text == "ANSWER 1"
    assert (reply.finish_reason, (await ask(model, asked("Itchen"), max_tokens=8)).text) != (
        "stop",
        "ANSWER 1",
    )
    await model.aclose()
