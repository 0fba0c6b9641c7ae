"""Model names: folders, files and hub names, and the errors of those without a model."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from colligate.errors import MissingExtra, UnknownModel, WeightsUnavailable
from colligate.models.hf.loading import find_source
from colligate.models.hf.model import HFModel
from support.models import likelihood
from support.tiny_models import save_model


@pytest.fixture
def folder(tiny_folder: Callable[..., Path], tmp_path: Path) -> Path:
    """A copy of a model's folder, to be damaged."""
    for file in tiny_folder("llama").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)


def test_another_file_is_another_version(folder):
    before = find_source(str(folder)).version
    assert find_source(str(folder)).version == before
    (folder / "model.safetensors").write_bytes(b"other weights")
    assert find_source(str(folder)).version != before


@pytest.mark.parametrize(
    ("target", "error", "why"),
    [
        *((path, UnknownModel, "the file or folder does not exist")
          for path in ("./no/such/folder", "/no/such", "~/no-such-model", "no-such.gguf", "a/b/c")),
        ("no-such-owner/no-such-model", WeightsUnavailable, "cannot load no-such-owner/.*name"),
        ("{tmp}", WeightsUnavailable, r"no config\.json"),
        ("{tmp}/model.gguf", WeightsUnavailable, "not a GGUF file"),
    ],
)  # fmt: skip
def test_a_name_without_a_model(tmp_path, target, error, why):
    (tmp_path / "model.gguf").write_bytes(b"not this")
    with pytest.raises(error, match=why):
        HFModel(target.format(tmp=tmp_path), name="hf:x")


@pytest.mark.parametrize(
    ("file", "content", "why"),
    [
        ("config.json", b"{", "cannot load"),
        ("config.json", b'{"model_type": "no-such-architecture"}', "no-such-architecture"),
        ("model.safetensors", b"", "cannot load"),
        ("model.safetensors", b"\xff" * 64, "cannot load"),
        ("tokenizer.json", b"{}", "cannot load"),
    ],
)
async def test_a_damaged_file_is_one_line(folder, file, content, why):
    (folder / file).write_bytes(content)
    with pytest.raises(WeightsUnavailable, match=why) as caught:
        await likelihood(HFModel(str(folder), name="hf:x"), "a", "b")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


async def test_a_model_with_a_recurrent_state_is_refused(tmp_path):
    save_model(tmp_path, "lfm2")
    with pytest.raises(WeightsUnavailable, match="recurrent state"):
        await likelihood(HFModel(str(tmp_path), name="hf:x"), "a", "b")


def test_code_in_a_folder_is_never_run(folder):
    (folder / "evil.py").write_text("raise SystemExit('it was run')")
    config = json.loads((folder / "config.json").read_text())
    config["auto_map"] = {"AutoModelForCausalLM": "evil.Model", "AutoConfig": "evil.Config"}
    config["model_type"] = "evil"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsUnavailable):
        HFModel(str(folder), name="hf:x")


def test_without_the_extra_it_says_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'colligate\[local\]'"):
        HFModel(str(folder), name="hf:x")
