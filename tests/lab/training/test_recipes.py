"""Recipes: those of the papers, changes of them, and the export for LLaMA-Factory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from colligate.errors import UsageError
from colligate.lab.training.recipes import (
    CONFIGURATION,
    DATASETS,
    apply_settings,
    export_llama_factory,
    list_recipes,
    parse_recipe,
    read_recipe,
)
from colligate.lab.training.samples import HELD_OUT, TRAIN, Sample, write_samples
from colligate.models import Message

LEAST = """
title = "One"
tasks = ["router"]
method = "lora"
cutoff = 512
global_batch = 8
learning_rate = 1e-4
"""


@pytest.mark.parametrize("name", list_recipes())
def test_those_that_come_with_colligate(name: str) -> None:
    recipe = read_recipe(name)
    assert recipe.name == name
    assert recipe.base.startswith("hf:")
    assert recipe.about
    # Each number with where it comes from.
    assert recipe.text.count("#") >= 4
    if name.endswith("-small"):
        assert recipe.method == "lora"
        assert recipe.tasks == read_recipe(name.removesuffix("-small")).tasks


def test_the_papers_numbers() -> None:
    router = read_recipe("rdr2-router")
    assert (router.rank, router.alpha, router.learning_rate) == (8, 16, 1e-5)
    # The step of the checkpoint that was selected.
    assert round(23_827 * router.epochs / router.global_batch) in (10_423, 10_424)
    for task in ("scope", "structuring", "selection"):
        recipe = read_recipe(f"longrefiner-{task}")
        assert recipe.tasks == (task,)
        assert (recipe.rank, recipe.alpha, recipe.learning_rate) == (16, 32, 3e-5)
        assert (recipe.epochs, recipe.schedule, recipe.warmup) == (1, "cosine", 0.1)
        assert recipe.targets == "all-linear"
    assert read_recipe("longrefiner-structuring").cutoff == 25_000
    dualrag = read_recipe("dualrag")
    assert dualrag.method == "full"
    assert dualrag.tasks == ("reasoner", "identifier", "summarizer")


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(LEAST, "utf-8")
    recipe = read_recipe(file)
    assert (recipe.name, recipe.text, recipe.tasks) == ("mine", LEAST, ("router",))
    assert read_recipe(str(file)) == recipe


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('title = "One"', 'title = "One"\nrnk = 4', "rnk: unknown key; did you mean rank?"),
        ('title = "One"', 'title = "One"\nrank = 0', "rank: input should be greater than or"),
        ('title = "One"', 'title = "One"\ndropout = nan', "dropout: "),
        ('title = "One"', 'title = "One"\nsave_every = 0', "save_every: "),
        ('title = "One"', 'name = "One"', "name: unknown key; the file's name is the name"),
        ('title = "One"', "", "title: "),
        ('"router"', '"cooking"', "tasks: "),
        ('"router"', "", "tasks: "),
    ],
)
def test_what_cannot_be_meant(old: str, new: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_recipe(LEAST.replace(old, new), "one", "one.toml")
    assert str(caught.value).startswith(f"one.toml: {why}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("rdr2-routr", "did you mean rdr2-router"),
        ("quite another", "there are dualrag, "),
        ("no/such.toml", "cannot read the recipe"),
    ],
)
def test_no_such_recipe(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_recipe(name)


def test_settings_in_place_of_the_recipes() -> None:
    recipe = read_recipe("dualrag")
    settings = ["rank=4", "targets=q_proj,v_proj", "tasks=scope", "epochs = 0.5"]
    made = apply_settings(recipe, [*settings, "schedule=linear", "learning_rate=1e-4"])
    assert (made.rank, made.targets, made.tasks) == (4, ("q_proj", "v_proj"), ("scope",))
    assert (made.epochs, made.schedule) == (0.5, "linear")
    assert made.learning_rate == 1e-4
    assert apply_settings(made, ["targets=all-linear"]).targets == "all-linear"
    assert (made.name, made.text) == (recipe.name, recipe.text)
    assert apply_settings(recipe, []) == recipe


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("rank", "--set rank: expected NAME=VALUE"),
        ("rnk=4", "--set rnk=4: there is no such setting; did you mean rank?"),
        ("name=x", "--set name=x: there is no such setting"),
        ("rank=four", "--set rank: input should be a valid integer"),
        ("rank=1\ntitle=2", "--set rank: "),
    ],
)
def test_settings_that_cannot_be_meant(setting: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        apply_settings(read_recipe("rdr2-router"), [setting])
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)


# The export for LLaMA-Factory.


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


def test_the_configuration_for_all_parameters(tmp_path: Path, data: Path) -> None:
    turns = (Message("user", "?"), Message("assistant", "None"))
    write_samples(data / TRAIN, [Sample("a", "summarizer", turns)])
    (data / HELD_OUT).unlink()
    settings = ("device_batch=2", "steps=7", "learning_rate=3e-7")
    file = export_llama_factory("dualrag", data, "hf:org/base", tmp_path / "out", settings)
    table = configuration(file)
    assert table["finetuning_type"] == "full"
    assert (table["gradient_accumulation_steps"], table["max_steps"]) == (64, 7)
    assert table["learning_rate"] == 3e-7
    assert not {"lora_rank", "eval_dataset"} & set(table)
    with pytest.raises(UsageError, match="global_batch: 128: it cannot be computed 3 at a time"):
        export_llama_factory("dualrag", data, "hf:org/base", tmp_path, ("device_batch=3",))
