"""The package: what it exports, and that importing it is cheap."""

from __future__ import annotations

import subprocess
import sys

from colligate.lab import training

HEAVY = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "matplotlib")


def test_every_exported_name_is_there_at_its_first_use() -> None:
    assert {name: getattr(training, name).__name__ for name in training.__all__} == {
        name: name for name in training.__all__
    }


def test_nothing_heavy_is_imported_before_training_begins() -> None:
    code = (
        "import sys\n"
        "from colligate.lab.training import curate_dualrag, curate_longrefiner, curate_rdr2\n"
        "from colligate.lab.training import evaluate\n"
        "from colligate.lab.training.recipes import export_llama_factory\n"
        f"print([m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
