"""Adapters in llama.cpp: the same as in transformers, and the base model untouched by them."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import WeightsUnavailable
from colligate.models import Message
from colligate.models.hf.model import HFModel
from colligate.models.llama.adapters import convert_adapter
from colligate.models.llama.libraries import pull_libraries
from colligate.models.llama.model import LlamaCpp
from support.models import ask, likelihood
from support.tiny_models import save_adapter

Open = Callable[..., LlamaCpp]
ASK = [Message("system", "You answer questions."), Message("user", "Who signed the treaty?")]
PAIR = ("Otters eat fish, and bridges cross rivers.", " Who signed the treaty of 1932?")
SPANS = [(0, 3), (4, 10)]


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Converted adapters go elsewhere; the libraries stay where they are."""
    monkeypatch.setenv("COLLIGATE_LLAMA", str(pull_libraries()))
    return tmp_path / "home"


@pytest.fixture
def folders(tiny_folder: Callable[..., Path], tmp_path: Path) -> list[Path]:
    """Two adapters of PEFT, the second on all layers that llama.cpp applies adapters to."""
    base = tiny_folder("llama", endless=True)
    return [
        save_adapter(base, tmp_path / "one", target_modules=["q_proj", "v_proj"], lora_alpha=32),
        save_adapter(base, tmp_path / "two", seed=2, target_modules="all-linear"),
    ]


async def measure(model: Any) -> tuple[list[float], float, list[float], str]:
    scores, odds, shares, answer = await asyncio.gather(
        likelihood(model, *PAIR),
        model.labels(ASK, ["Yes", "No"]),
        model.attention(ASK, SPANS),
        ask(model, ASK, max_tokens=20),
    )
    return scores, odds.odds["Yes"], shares, answer.text


def close(one: Any, other: Any, scale: float) -> bool:
    return bool(
        one[0] == pytest.approx(other[0], abs=scale)
        and one[1] == pytest.approx(other[1], abs=scale)
        and one[2] == pytest.approx(other[2], abs=scale / 100)
    )


async def test_they_compute_what_transformers_does(open_model, tiny_folder, folders):
    one = HFModel(str(tiny_folder("llama", endless=True)), name="hf:tiny", dtype="float32")
    other = open_model()
    measured = []
    for adapter in (None, *folders):
        views = [await m.with_adapter(adapter) if adapter else m for m in (one, other)]
        here, there = [await measure(view) for view in views]
        assert close(here, there, 0.05)
        assert not any(close(here, before, 0.05) for before in measured)
        measured.append(here)
    await one.aclose()


async def test_a_file_in_gguf_is_the_same_adapter(open_model, tiny_gguf, folders, tmp_path):
    model = open_model()
    base = tiny_gguf("llama", endless=True)
    file = convert_adapter(folders[0], base, tmp_path / "converted")
    views = [await model.with_adapter(adapter) for adapter in (file, str(folders[0]))]
    one, other = [await measure(view) for view in views]
    assert close(one, other, 0.02)
    assert not close(one, await measure(model), 0.05)


async def test_another_file_at_the_same_path_is_another_adapter(
    open_model, tiny_gguf, folders, tmp_path
):
    model, base, file = open_model(), tiny_gguf("llama", endless=True), tmp_path / "mine.gguf"
    scores = []
    for folder in folders:
        shutil.copy(convert_adapter(folder, base, tmp_path / "converted"), file)
        scores.append(await likelihood(await model.with_adapter(file), *PAIR))
    assert scores[0] != pytest.approx(scores[1], abs=0.01)


async def test_one_that_does_not_fit_leaves_the_model_usable(
    open_model, tiny_gguf, tiny_folder, folders, tmp_path
):
    model = open_model()
    before = await measure(model)
    foreign = save_adapter(tiny_folder("llama", hidden_size=48), tmp_path / "foreign")
    file = convert_adapter(foreign, tiny_gguf("llama", hidden_size=48), tmp_path / "converted")
    damaged = tmp_path / "damaged.gguf"
    own = convert_adapter(folders[0], tiny_gguf("llama", endless=True), tmp_path / "converted")
    damaged.write_bytes(own.read_bytes()[:-900])
    for adapter in (foreign, file, damaged, tmp_path / "none"):
        with pytest.raises(WeightsUnavailable) as caught:
            await model.with_adapter(adapter)
        assert "\n" not in str(caught.value)
    assert close(await measure(model), before, 0.05)
