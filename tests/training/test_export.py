"""What LLaMA-Factory is given: a configuration, a description of the data, and the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import UsageError
from colligate.models import Message
from colligate.training.export import CONFIGURATION, DATASETS, export_llama_factory
from colligate.training.samples import HELD_OUT, TRAIN, Sample, write_samples

TURNS = (
    Message("system", "Be brief."),
    Message("user", 'Why: "otters"?\n# no comment'),
    Message("assistant", "EXPAND 1 \N{OTTER}"),
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    other = Sample("c", "scope", (Message("user", "?"), Message("assistant", "[Local]")))
    write_samples(
        folder / TRAIN, [Sample("a", "router", TURNS), other, Sample("b", "router", TURNS)]
    )
    write_samples(folder / HELD_OUT, [Sample("d", "router", TURNS)])
    return folder


def configuration(file: Path) -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    table: dict[str, Any] = yaml.safe_load(file.read_text("utf-8"))
    return table


def test_the_samples_and_their_description(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    file = export_llama_factory("rdr2-router", data, "hf:org/base", out)
    assert file == out / CONFIGURATION
    described = json.loads((out / DATASETS).read_text("utf-8"))
    assert set(described) == {"colligate_rdr2_router", "colligate_rdr2_router_held_out"}
    for name, count in (("colligate_rdr2_router", 2), ("colligate_rdr2_router_held_out", 1)):
        entry = described[name]
        assert entry["formatting"] == "sharegpt"
        column, tags = entry["columns"]["messages"], entry["tags"]
        lines = (out / entry["file_name"]).read_text("utf-8").splitlines()
        assert len(lines) == count
        for line in lines:
            turns = json.loads(line)[column]
            read = [(turn[tags["role_tag"]], turn[tags["content_tag"]]) for turn in turns]
            assert read == [(turn.role, turn.content) for turn in TURNS]
        roles = [tags[f"{role}_tag"] for role in ("system", "user", "assistant")]
        assert roles == ["system", "user", "assistant"]


def test_the_configuration(data: Path, tmp_path: Path) -> None:
    file = export_llama_factory("rdr2-router", data, "hf:org/base", tmp_path / "out")
    table = configuration(file)
    expected = {
        "model_name_or_path": "org/base",
        "stage": "sft",
        "do_train": True,
        "finetuning_type": "lora",
        "lora_rank": 8,
        "lora_alpha": 16.0,
        "lora_target": "all",
        "dataset": "colligate_rdr2_router",
        "eval_dataset": "colligate_rdr2_router_held_out",
        "dataset_dir": str((tmp_path / "out").resolve()),
        "cutoff_len": 4096,
        "mask_history": True,
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 8,
        "learning_rate": 1e-5,
        "num_train_epochs": 3.5,
        "lr_scheduler_type": "cosine",
        "warmup_ratio": 0.1,
        "bf16": True,
    }
    assert {name: table.get(name) for name in expected} == expected
    # In words of another type the numbers would be taken for names.
    assert {type(table[name]) for name in ("learning_rate", "weight_decay")} == {float}
    assert "template" not in table


def test_all_parameters_and_packing(tmp_path: Path, data: Path) -> None:
    turns = (Message("user", "?"), Message("assistant", "None"))
    write_samples(data / TRAIN, [Sample("a", "summarizer", turns)])
    (data / HELD_OUT).unlink()
    settings = ("device_batch=2", "steps=7", "learning_rate=3e-7")
    file = export_llama_factory("dualrag", data, "hf:org/base", tmp_path / "out", settings)
    table = configuration(file)
    assert table["finetuning_type"] == "full"
    assert (table["packing"], table["neat_packing"]) == (True, True)
    assert (table["gradient_accumulation_steps"], table["max_steps"]) == (64, 7)
    assert "It counts packed sequences" in file.read_text("utf-8")
    assert table["learning_rate"] == 3e-7
    assert not {"lora_rank", "eval_dataset"} & set(table)


def test_a_folder_for_a_base(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base").mkdir()
    monkeypatch.chdir(tmp_path)
    file = export_llama_factory("rdr2-router", data, "hf:base", tmp_path / "out")
    assert configuration(file)["model_name_or_path"] == str((tmp_path / "base").resolve())


@pytest.mark.parametrize(
    "base", ["bundled", "openai:gpt-x", "gguf:a.gguf", "hf:a.gguf", "hf:smollm2-135m", "hf:a+b"]
)
def test_a_base_that_it_cannot_train(data: Path, tmp_path: Path, base: str) -> None:
    with pytest.raises(UsageError, match="cannot export for"):
        export_llama_factory("rdr2-router", data, base, tmp_path / "out")


def test_data_that_are_not_there(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"there is no .*train\.jsonl"):
        export_llama_factory("rdr2-router", tmp_path, "hf:org/base", tmp_path / "out")
    with pytest.raises(UsageError, match="has no sample of structuring"):
        export_llama_factory("longrefiner-structuring", data, "hf:org/base", tmp_path / "out")
    with pytest.raises(UsageError, match="cannot make the folder"):
        export_llama_factory("rdr2-router", data, "hf:org/base", data / TRAIN)


def test_a_batch_that_cannot_be_shared(data: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="global_batch: 8: it cannot be computed 3 at a time"):
        export_llama_factory("rdr2-router", data, "hf:org/base", tmp_path, ("device_batch=3",))
