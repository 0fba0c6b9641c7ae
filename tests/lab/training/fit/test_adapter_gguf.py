"""Trained adapters as GGUF files: the same model as peft makes, and what llama.cpp cannot apply."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from colligate.lab.training.adapter_gguf import write_adapter_gguf
from colligate.models.hf.loading import find_source, load_model
from support.gguf_models import save_gguf
from support.tiny_models import save_adapter

IDS = torch.tensor([[5, 80, 31, 200, 17, 9, 44, 120]])


def write(base: Path, adapter: Path) -> Path:
    target = adapter / "adapter.gguf"
    write_adapter_gguf(adapter, transformers.AutoConfig.from_pretrained(base), target)
    return target


def logits_of(model: Any) -> torch.Tensor:
    with torch.inference_mode():
        return model.eval()(IDS).logits


def merged(base: Path, adapter: Path, target: Path) -> torch.Tensor:
    """Add the adapter to the base's tensors by llama.cpp's rule, and read the sum."""
    read = gguf.GGUFReader(adapter)
    assert read.fields["general.type"].contents() == "adapter"
    alpha = read.fields["adapter.lora.alpha"].contents()
    matrices = {tensor.name: tensor.data for tensor in read.tensors}
    save_gguf(base, target)
    for tensor in gguf.GGUFReader(target, "r+").tensors:
        if (a := matrices.pop(f"{tensor.name}.lora_a", None)) is not None:
            b = matrices.pop(f"{tensor.name}.lora_b")
            tensor.data[:] += (alpha / b.shape[1] * b.astype(np.float64) @ a).astype(np.float32)
    assert not matrices
    return logits_of(load_model(find_source(str(target)), device="cpu", dtype="float32"))


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize(
    "settings",
    [{"target_modules": ["q_proj", "k_proj"], "lora_alpha": 32}, {"target_modules": "all-linear"}],
    ids=["attention", "all"],
)
def test_it_is_the_model_that_peft_makes(tiny_folder, tmp_path, architecture, settings):
    base = tiny_folder(architecture)
    adapter = save_adapter(base, tmp_path / "adapter", **settings)
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = logits_of(plain)
    with warnings.catch_warnings(action="ignore"):  # of peft itself
        expected = logits_of(peft.PeftModel.from_pretrained(plain, adapter))
    assert (expected - before).abs().max() > 0.1
    found = merged(base, write(base, adapter), tmp_path / "sum.gguf")
    assert torch.allclose(found, expected, atol=1e-4)


def test_matrices_of_16_bits(tiny_folder: Callable[..., Path], tmp_path: Path) -> None:
    base = tiny_folder("llama")
    adapter = save_adapter(base, tmp_path / "adapter", target_modules=["v_proj"])
    weights = adapter / "adapter_model.safetensors"
    save_file({name: t.to(torch.bfloat16) for name, t in load_file(weights).items()}, weights)
    tensors = {t.name: t.data for t in gguf.GGUFReader(write(base, adapter)).tensors}
    expected = load_file(weights)["base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight"]
    assert np.array_equal(tensors["blk.1.attn_v.weight.lora_a"], expected.float())


@pytest.mark.parametrize("targets", [["lm_head"], ["embed_tokens"]])
def test_layers_that_llama_cpp_does_not_adapt(tiny_folder, tmp_path, targets):
    base = tiny_folder("llama")
    adapter = save_adapter(base, tmp_path / "adapter", target_modules=targets)
    with pytest.raises(ValueError, match=rf"llama\.cpp applies no adapter to .*{targets[0]}"):
        write(base, adapter)


def test_an_architecture_that_is_not_known(tiny_folder, tmp_path):
    base = tiny_folder("qwen2")
    adapter = save_adapter(base, tmp_path / "adapter")
    config = transformers.GPT2Config()
    with pytest.raises(ValueError, match=r"how llama\.cpp stores gpt2 models is not known"):
        write_adapter_gguf(adapter, config, tmp_path / "adapter.gguf")
