"""The whole way on the command line: fit an adapter, measure it beside its base."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from colligate.cli import main
from colligate.lab.training.samples import HELD_OUT, TRAIN, Sample, write_samples
from colligate.models import Message

pytestmark = pytest.mark.real

RECIPE = """
title = "Otters"
tasks = ["scope"]
method = "lora"
cutoff = 64
global_batch = 8
device_batch = 8
learning_rate = 0.02
steps = 40
rank = 8
alpha = 16
gradient_checkpointing = false
"""


def colligate(*arguments: Any) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = main([str(each) for each in arguments])
    return status, out.getvalue(), err.getvalue()


@pytest.fixture
def curated(tmp_path: Path) -> Path:
    """Questions that begin with one word are narrow, those with another are broad."""

    def sample(number: int) -> Sample:
        asked = ("How " if number % 2 else "Be ") * (2 + number % 7)
        turns = (
            Message("user", asked),
            Message("assistant", f"[{('Local', 'Global')[number % 2]}]"),
        )
        return Sample(f"scope/{number}", "scope", turns)

    folder = tmp_path / "curated"
    folder.mkdir()
    write_samples(folder / TRAIN, map(sample, range(64)))
    write_samples(folder / HELD_OUT, map(sample, range(100, 124)))
    (tmp_path / "otters.toml").write_text(RECIPE, encoding="utf-8")
    return folder


def test_an_adapter_that_the_command_fits_is_measured_above_its_base(
    tiny: Any, curated: Path, tmp_path: Path
) -> None:
    base, adapter = f"hf:{tiny()}", tmp_path / "adapter"
    fitting = (
        *("train", "fit", tmp_path / "otters.toml", "--data", curated, "--base", base),
        *("--out", adapter, "--set", "warmup=0.1"),
    )
    status, out, err = colligate(*fitting)
    assert status == 0, err
    assert str(adapter) in out
    assert (adapter / "adapter_model.safetensors").is_file()

    status, out, err = colligate(*fitting, "--json")  # nothing is left to do
    assert status == 0, err
    fitted = json.loads(out)
    assert fitted["finished"] is True
    assert fitted["model"] == f"{base}+{adapter}"
    assert fitted["held_out_after"] < fitted["held_out_before"]

    evaluating = ("train", "evaluate", curated, "--model", base, "--out", tmp_path / "found")
    status, out, err = colligate(*evaluating, "--adapter", adapter, "--json")
    assert status == 0, err
    report = json.loads(out)
    [found] = [m for m in report["measures"] if m["metric"] == "balanced_accuracy"]
    assert found["base"] <= 0.75 < 0.9 < found["adapted"]
    [found] = [m for m in report["measures"] if m["metric"] == "accuracy"]
    assert found["stars"]
    assert found["samples"] == 24
