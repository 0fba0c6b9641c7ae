"""The whole way on the command line: fit an adapter, measure it beside its base."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colligate.lab.training.samples import HELD_OUT, TRAIN, Sample, write_samples
from colligate.models import Message
from support.cli import colligate  # noqa: F401

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
    colligate: Any,  # noqa: F811
    tiny: Any,
    curated: Path,
    tmp_path: Path,
) -> None:
    base, adapter = f"hf:{tiny()}", tmp_path / "adapter"
    fitting = (
        *("train", "fit", tmp_path / "otters.toml", "--data", curated, "--base", base),
        *("--out", adapter, "--set", "warmup=0.1"),
    )
    done = colligate.here(*fitting)
    assert done.returncode == 0, done.stderr
    assert str(adapter) in done.stdout
    assert (adapter / "adapter_model.safetensors").is_file()

    done = colligate.here(*fitting)  # nothing is left to do
    assert done.returncode == 0, done.stderr
    fitted = dict(line.split(maxsplit=1) for line in done.stdout.splitlines()[1:])
    assert fitted["finished"] == "True"
    assert fitted["model"] == f"{base}+{adapter}"
    assert float(fitted["held_out_after"]) < float(fitted["held_out_before"])

    evaluating = ("train", "evaluate", curated, "--model", base, "--out", tmp_path / "found")
    done = colligate.here(*evaluating, "--adapter", adapter)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "found" / "report.json").read_bytes())
    [found] = [m for m in report["measures"] if m["metric"] == "balanced_accuracy"]
    assert found["base"] <= 0.75 < 0.9 < found["adapted"]
    [found] = [m for m in report["measures"] if m["metric"] == "accuracy"]
    assert found["stars"]
    assert found["samples"] == 24
