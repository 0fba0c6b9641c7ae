"""LoRA adapters: the same as peft computes, and the base model untouched by them."""

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from colligate.errors import WeightsUnavailable
from colligate.models.hf.runtime import Runtime
from support.tiny_models import TinyModel

IDS = [5, 80, 31, 200, 17, 9, 44, 120]


@pytest.fixture
def folder(tiny_folder: Callable[..., Path]) -> Path:
    return tiny_folder("llama")


@pytest.fixture
def runtime(folder: Path) -> Runtime:
    return TinyModel(folder).runtime


def by_peft(base: Path, adapter: Path, *, merged: bool = False) -> torch.Tensor:
    """What a fresh model with this one adapter computes."""
    import peft
    import transformers

    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).eval()
    with warnings.catch_warnings(action="ignore"), torch.inference_mode():  # of peft itself
        model = peft.PeftModel.from_pretrained(plain, adapter)
        return (model.merge_and_unload() if merged else model)(torch.tensor([IDS])).logits


def computed(runtime: Runtime, key: str = "") -> torch.Tensor:
    with runtime.inference(adapter=key):
        logits: torch.Tensor = runtime.forward(IDS, logits_to_keep=0).logits
        return logits


SETTINGS: list[dict[str, Any]] = [
    {},
    {"r": 8, "lora_alpha": 32, "target_modules": ["v_proj", "down_proj"], "lora_dropout": 0.5},
    {"r": 2, "target_modules": "all-linear", "use_rslora": True},
    {"use_dora": True, "rank_pattern": {"layers.1.self_attn.q_proj": 3}},
    {"layers_to_transform": [1], "lora_bias": True},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=["q", "dropout", "all", "dora", "bias"])
def test_it_computes_what_peft_does(runtime, folder, save, settings):
    adapter = save("adapter", **settings)
    base = computed(runtime)
    got = computed(runtime, runtime.adapters.load(adapter))
    assert (got - base).abs().max() > 0.01
    assert torch.allclose(got, by_peft(folder, adapter), atol=1e-5)
    if not settings.get("lora_bias"):  # which cannot be merged into layers without a bias
        assert torch.allclose(got, by_peft(folder, adapter, merged=True), atol=1e-5, rtol=1e-5)
    assert torch.equal(computed(runtime), base)


def test_the_key_is_that_of_the_content(runtime, save, tmp_path):
    one = save("adapter")
    key = runtime.adapters.load(one)
    expected = computed(runtime, key)
    assert runtime.adapters.load(str(one)) == key
    assert runtime.adapters.load(shutil.copytree(one, tmp_path / "copy")) == key
    again = runtime.adapters.load(save("adapter", seed=2))  # another in the same place
    assert again != key
    assert not torch.allclose(computed(runtime, again), expected, atol=1e-3)
    assert torch.equal(computed(runtime, key), expected)


def refused(runtime: Runtime, adapter: str | Path, why: str) -> None:
    """Refused in one line, for this reason, and the model is as it was."""
    base, names = computed(runtime), {name for name, _ in runtime.model.named_parameters()}
    with pytest.raises(WeightsUnavailable, match=why) as caught:
        runtime.adapters.load(adapter)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600
    assert torch.equal(computed(runtime), base)
    left = {name.replace(".base_layer", "") for name, _ in runtime.model.named_parameters()}
    assert left == {name.replace(".base_layer", "") for name in names}


@pytest.mark.parametrize(
    ("sizes", "why"),
    [
        ({"hidden_size": 48}, "does not fit hf:tiny: .*size mismatch"),
        ({"num_hidden_layers": 1}, "does not fit hf:tiny: .*layers.1.self_attn.q_proj"),
        ({"num_hidden_layers": 3}, "does not fit hf:tiny: .*layers.2.self_attn.q_proj"),
    ],
    ids=["width", "fewer layers", "more layers"],
)
def test_one_made_for_another_model(runtime, tiny_folder, save, sizes, why):
    runtime.adapters.load(save("good", seed=4))
    adapter = save("foreign", of=tiny_folder("llama", **sizes))
    refused(runtime, adapter, why)
    key = runtime.adapters.load(save("good", seed=4))
    assert not torch.equal(computed(runtime, key), computed(runtime))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"target_modules": ["no_such_proj"]}, "does not fit hf:tiny: .*no_such_proj"),
        ({"target_modules": ["self_attn"]}, "does not fit hf:tiny"),
        ({"target_modules": ["q_proj", "v_proj"]}, "does not fit hf:tiny: .*v_proj"),
        ({"r": "four"}, "does not fit hf:tiny"),
        ({"peft_type": "PROMPT_TUNING"}, "its type is PROMPT_TUNING"),
        ({"peft_type": None}, "its type is unknown"),
        ({"bias": "all"}, "more than plain LoRA: bias"),
        ({"modules_to_save": ["lm_head"]}, "more than plain LoRA: modules_to_save"),
        ({"layer_replication": [[0, 2], [1, 2]]}, "more than plain LoRA: layer_replication"),
        ({"made_up_later": {"depth": 3}}, "more than plain LoRA: made_up_later"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights=pissa_niter_4"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_that_cannot_be_used(runtime, save, change, why):
    adapter = save("adapter")
    config = adapter / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | change))
    refused(runtime, adapter, why)


def test_the_bases_own_weights_are_never_written_over(runtime, save):
    weights = save("adapter") / "adapter_model.safetensors"
    name = "base_model.model.model.embed_tokens.weight"
    save_file({**load_file(weights), name: torch.zeros(400, 32)}, weights)
    refused(runtime, weights.parent, "more than plain LoRA: it holds .*embed_tokens.weight")


CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        (CONFIG, None, "it has no adapter_config.json"),
        (CONFIG, b'{"peft_type": "LORA", ', "adapter_config.json is damaged"),
        (CONFIG, b"\xff\xfe", "adapter_config.json is damaged"),
        (CONFIG, b"[1, 2]", "its type is unknown"),
        (WEIGHTS, None, "it has no adapter_model.safetensors"),
        (WEIGHTS, b"", "adapter_model.safetensors is damaged"),
        (WEIGHTS, b"\x00" * 40, "adapter_model.safetensors is damaged"),
        (WEIGHTS, "cut short", "adapter_model.safetensors is damaged"),
    ],
)
def test_files_missing_or_damaged(runtime, save, file, content, why):
    path = save("adapter") / file
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content if isinstance(content, bytes) else path.read_bytes()[:-100])
    refused(runtime, path.parent, why)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of the hub, and no way to it."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.parametrize("name", ["no-such-folder", "./no/such", "/no/such", "a/b/c"])
def test_no_such_folder(runtime, hub, name):
    refused(runtime, name, "no such folder")
    refused(runtime, Path(name), "no such folder")


def test_a_name_of_the_hub(runtime, hub, save):
    refused(runtime, "somebody/router", "check the name and the connection")
    adapter = save("adapter")
    repository = hub / "models--somebody--router"
    shutil.copytree(adapter, repository / "snapshots" / "0123abc")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("0123abc")
    assert runtime.adapters.load("somebody/router") == runtime.adapters.load(adapter)
