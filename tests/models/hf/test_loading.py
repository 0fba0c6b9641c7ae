"""What a model name can stand for, and what is said when it stands for nothing."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from colligate.errors import MissingExtra, UnknownModel, UsageError, WeightsUnavailable
from colligate.models.hf.loading import facts, find, load_model, load_tokenizer
from colligate.models.hf.model import HFModel
from support.models import likelihood


@pytest.fixture
def folder(tiny_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """A model's folder that may be spoilt."""
    for file in tiny_folder("llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def test_a_folder_is_loaded_as_it_is(folder: Path) -> None:
    source = find(str(folder))
    model = load_model(source, dtype="float32")
    assert (model.dtype, model.device.type, model.training) == (torch.float32, "cpu", False)
    assert load_tokenizer(source).chat_template
    assert facts(source) == (512, 2 * 2 * 2 * 8 * 2)  # layers, K and V, heads, width, bytes


def test_the_type_fits_the_processor(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for able, dtype in ((True, torch.bfloat16), (False, torch.float32)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda able=able: {"avx512_bf16": able})
        assert load_model(find(str(folder)), device="cpu").dtype == dtype


def test_another_file_is_another_version(folder: Path) -> None:
    before = find(str(folder)).version
    assert find(str(folder)).version == before
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert find(str(folder)).version != before


@pytest.mark.parametrize(
    "target", ["./no/such/folder", "/no/such", "~/no-such-model", "no-such.gguf", "a/b/c"]
)
def test_a_path_that_is_not_there(target: str) -> None:
    with pytest.raises(UnknownModel, match="no such file or folder"):
        HFModel(target, name=f"hf:{target}")


def test_a_hub_name_that_is_not_on_this_machine_and_no_hub() -> None:
    with pytest.raises(
        WeightsUnavailable, match=r"cannot load no-such-owner/no-such-model: .*name"
    ):
        HFModel("no-such-owner/no-such-model", name="hf:x")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable, match=r"no config\.json"):
        HFModel(str(tmp_path), name="hf:x")


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"not this")
    with pytest.raises(WeightsUnavailable, match="not a GGUF file"):
        HFModel(str(tmp_path / "model.gguf"), name="hf:x")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", b"{", "cannot load"),
        ("config.json", b'{"model_type": "no-such-architecture"}', "no-such-architecture"),
        ("model.safetensors", b"", "cannot load"),
        ("model.safetensors", b"\xff" * 64, "cannot load"),
        ("tokenizer.json", b"{}", "cannot load"),
    ],
)
async def test_a_damaged_file_is_one_line(
    folder: Path, file: str, content: bytes, said: str
) -> None:
    (folder / file).write_bytes(content)
    with pytest.raises(WeightsUnavailable, match=said) as caught:
        await likelihood(HFModel(str(folder), name="hf:x"), "a", "b")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


def test_code_in_a_folder_is_never_run(folder: Path) -> None:
    (folder / "evil.py").write_text("raise SystemExit('it was run')")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}
    config["model_type"] = "evil"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsUnavailable):
        HFModel(str(folder), name="hf:x")


def test_a_type_or_device_there_is_not(folder: Path) -> None:
    with pytest.raises(UsageError, match="no dtype 'float8'"):
        load_model(find(str(folder)), dtype="float8")
    with pytest.raises(UsageError, match="no device 'abacus'"):
        load_model(find(str(folder)), device="abacus")


def test_without_the_extra_it_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'colligate\[local\]'"):
        HFModel(str(folder), name="hf:x")
