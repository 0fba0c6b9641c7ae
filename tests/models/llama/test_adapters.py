"""LoRA adapters as GGUF files: the same model as peft makes, and what cannot be converted."""

from __future__ import annotations

import shutil
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from colligate.errors import MissingExtra, WeightsUnavailable
from colligate.models.hf.loading import find_source, load_model
from colligate.models.llama.adapters import convert_adapter
from support.gguf_models import save_gguf
from support.tiny_models import save_adapter, save_model

IDS = torch.tensor([[5, 80, 31, 200, 17, 9, 44, 120]])
WEIGHTS = "adapter_model.safetensors"


@pytest.fixture(scope="session")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small models, each as transformers and as llama.cpp reads it."""
    folder = tmp_path_factory.mktemp("bases")
    for architecture in ("llama", "qwen2"):
        save_model(folder / architecture, architecture)
        save_gguf(folder / architecture, folder / f"{architecture}.gguf")
    return folder


@pytest.fixture
def save(bases: Path, tmp_path: Path) -> Callable[..., Path]:
    def make(name: str = "adapter", of: str = "llama", **settings: Any) -> Path:
        return save_adapter(bases / of, tmp_path / name, **settings)

    return make


@pytest.fixture
def convert(bases: Path, tmp_path: Path) -> Callable[..., Path]:
    def make(adapter: str | Path, of: str = "llama") -> Path:
        return convert_adapter(adapter, bases / f"{of}.gguf", tmp_path / "converted")

    return make


def by_peft(base: Path, adapter: Path) -> torch.Tensor:
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    with warnings.catch_warnings(action="ignore"), torch.inference_mode():  # of peft itself
        return peft.PeftModel.from_pretrained(plain, adapter).eval()(IDS).logits


def merged(base: Path, adapter: Path, target: Path) -> torch.Tensor:
    """Add the adapter to the base's tensors by llama.cpp's rule, and read the sum."""
    read = gguf.GGUFReader(adapter)
    assert read.fields["general.type"].contents() == "adapter"
    alpha = read.fields["adapter.lora.alpha"].contents()
    matrices = {tensor.name: tensor.data for tensor in read.tensors}
    target.write_bytes(base.read_bytes())
    for tensor in gguf.GGUFReader(target, "r+").tensors:
        if (a := matrices.pop(f"{tensor.name}.lora_a", None)) is not None:
            b = matrices.pop(f"{tensor.name}.lora_b")
            tensor.data[:] += (alpha / b.shape[1] * b.astype(np.float64) @ a).astype(np.float32)
    assert not matrices
    model = load_model(find_source(str(target)), device="cpu", dtype="float32")
    with torch.inference_mode():
        return model(IDS).logits


@pytest.mark.parametrize("of", ["llama", "qwen2"])
@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["q_proj", "k_proj"], "lora_alpha": 32},
        {"r": 2, "target_modules": "all-linear", "use_rslora": True},
        {
            "target_modules": ["k_proj", "v_proj", "o_proj", "up_proj", "down_proj"],
            "rank_pattern": {"layers.1.self_attn.k_proj": 3, "up_proj": 6},
            "alpha_pattern": {"k_proj": 20, "layers.0.mlp.down_proj": 5},
        },
        {"layers_to_transform": [1]},
    ],
    ids=["attention", "all, rsLoRA", "patterns", "one layer"],
)
def test_it_is_the_model_that_peft_makes(bases, save, convert, tmp_path, of, settings):
    adapter = save(of=of, **settings)
    made = convert(adapter, of)
    base = bases / f"{of}.gguf"
    plain = transformers.AutoModelForCausalLM.from_pretrained(bases / of, dtype=torch.float32)
    with torch.inference_mode():
        before = plain(IDS).logits
    expected = by_peft(bases / of, adapter)
    assert (expected - before).abs().max() > 0.1
    assert torch.allclose(merged(base, made, tmp_path / "sum.gguf"), expected, atol=1e-4)


def test_matrices_of_16_bits(save, convert):
    weights = save(target_modules=["v_proj"]) / WEIGHTS
    for kind in (torch.bfloat16, torch.float16):
        save_file({name: t.to(kind) for name, t in load_file(weights).items()}, weights)
        expected = load_file(weights)
        tensors = {t.name: t.data for t in gguf.GGUFReader(convert(weights.parent)).tensors}
        name = "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight"
        assert np.array_equal(tensors["blk.1.attn_v.weight.lora_a"], expected[name].float())


def test_a_changed_adapter_is_converted_again(save, convert, tmp_path):
    adapter = save()
    first = convert(adapter)
    written = first.stat().st_mtime_ns
    assert convert(shutil.copytree(adapter, tmp_path / "copy")) == first
    assert first.stat().st_mtime_ns == written
    shutil.rmtree(adapter)
    assert convert(save(seed=2)) != first


def test_converting_at_the_same_time(save, convert):
    adapter = save()
    with ThreadPoolExecutor(4) as pool:
        made = set(pool.map(convert, [adapter] * 4))
    (path,) = made
    assert list(path.parent.iterdir()) == [path]
    assert len(gguf.GGUFReader(path).tensors) == 4


def test_a_gguf_adapter_is_used_as_it_is(bases, save, convert, tmp_path):
    made = convert(save())
    given = Path(shutil.copy(made, tmp_path / "own.gguf"))
    assert convert(str(given)) == given
    refused(convert, tmp_path / "none.gguf", "the file does not exist")
    refused(convert, bases / "llama.gguf", "it is not a plain LoRA adapter")
    with pytest.raises(WeightsUnavailable, match="it is for the architecture llama"):
        convert(given, "qwen2")


def refused(convert: Callable[..., Path], adapter: str | Path, why: str) -> None:
    """Refused in one line, for this reason."""
    with pytest.raises(WeightsUnavailable, match=why) as caught:
        convert(adapter)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"use_dora": True}, "llama.cpp has no use_dora"),
        ({"lora_bias": True}, "llama.cpp has no lora_bias"),
        ({"target_modules": ["lm_head"]}, "more than plain LoRA: it holds .*lm_head"),
        ({"target_modules": ["embed_tokens"]}, "more than plain LoRA: it holds .*embed_tokens"),
        ({"modules_to_save": ["lm_head"]}, "more than plain LoRA: modules_to_save"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_more_than_llama_cpp_can_apply(save, convert, tmp_path, settings, why):
    refused(convert, save(**settings), why)
    assert not (tmp_path / "converted").exists()


@pytest.mark.parametrize("content", [b"", b"\x00" * 40, "cut short", "half", "empty"])
def test_damaged_weights(save, convert, content):
    weights = save() / WEIGHTS
    tensors = load_file(weights)
    if content == "half":
        save_file(dict(list(tensors.items())[:1]), weights)
        refused(convert, weights.parent, "do not belong together")
    elif content == "empty":
        save_file({}, weights)
        refused(convert, weights.parent, "it holds no matrices")
    else:
        data = weights.read_bytes()[:-100] if content == "cut short" else content
        weights.write_bytes(data)
        refused(convert, weights.parent, "adapter_model.safetensors is damaged")


@pytest.mark.parametrize(
    ("left_out", "why"),
    [("layers.1.self_attn.v", "v_proj in 1 of 2 layers"), ("v_proj", "v_proj in 0 of 2 layers")],
)
def test_one_that_lacks_a_layer_or_a_target(save, convert, left_out, why):
    weights = save(target_modules=["q_proj", "v_proj"]) / WEIGHTS
    save_file({n: t for n, t in load_file(weights).items() if left_out not in n}, weights)
    refused(convert, weights.parent, why)


def test_a_folder_needs_an_extra(
    save: Callable[..., Path], convert: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(MissingExtra, match=r"gguf.*colligate\[adapters\]"):
        convert(save())
