"""Recipes: those that come with colligate say what the papers say, and others are read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from colligate.errors import UsageError
from colligate.training.recipes import changed, names, parse_recipe, read_recipe

LEAST = """
title = "One"
tasks = ["router"]
method = "lora"
cutoff = 512
global_batch = 8
learning_rate = 1e-4
"""


@pytest.mark.parametrize("name", names())
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


def test_what_is_not_said_is_usual() -> None:
    recipe = parse_recipe(LEAST, "one", "one.toml")
    assert (recipe.epochs, recipe.device_batch, recipe.packing) == (1.0, 1, False)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("rnk = 4", "one.toml: rnk: there is no such key; did you mean rank?"),
        ("rank = 0", "one.toml: rank: input should be greater than or equal to 1"),
        ("epochs = -1", "one.toml: epochs: "),
        ("warmup = 1.5", "one.toml: warmup: "),
        ('schedule = "steps"', "one.toml: schedule: "),
        ('precision = "float16"', "one.toml: precision: "),
        ("evaluate_every = 2.5", "one.toml: evaluate_every: "),
        ("save_every = 0", "one.toml: save_every: "),
        ("dropout = nan", "one.toml: dropout: "),
        ('name = "other"', "one.toml: name: there is no such key; the file's name is its own"),
        ("rank = = 4", "one.toml is no TOML"),
    ],
)
def test_what_cannot_be_meant(line: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_recipe(LEAST + line, "one", "one.toml")
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["title", "tasks", "method", "cutoff", "learning_rate"])
def test_what_has_to_be_said(key: str) -> None:
    text = "\n".join(line for line in LEAST.splitlines() if not line.startswith(key))
    with pytest.raises(UsageError, match=f"one.toml: {key}"):
        parse_recipe(text, "one", "one.toml")


@pytest.mark.parametrize("tasks", ['["cooking"]', "[]"])
def test_tasks_that_nobody_has(tasks: str) -> None:
    with pytest.raises(UsageError, match=r"one\.toml: tasks"):
        parse_recipe(LEAST.replace('["router"]', tasks), "one", "one.toml")


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
    settings = ["rank=4", "targets=q_proj,v_proj", "tasks=scope", "epochs = 0.5", "packing=false"]
    made = changed(recipe, [*settings, "schedule=linear", "learning_rate=1e-4"])
    assert (made.rank, made.targets, made.tasks) == (4, ("q_proj", "v_proj"), ("scope",))
    assert (made.epochs, made.packing, made.schedule) == (0.5, False, "linear")
    assert made.learning_rate == 1e-4
    assert changed(made, ["targets=all-linear"]).targets == "all-linear"
    assert (made.name, made.text) == (recipe.name, recipe.text)
    assert changed(recipe, []) == recipe


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("rank", "--set rank: it is written NAME=VALUE"),
        ("rnk=4", "--set rnk=4: there is no such setting; did you mean rank?"),
        ("name=x", "--set name=x: there is no such setting"),
        ("text=x", "--set text=x: there is no such setting"),
        ("rank=four", "--set rank: input should be a valid integer"),
        ("method=both", "--set method: input should be 'lora' or 'full'"),
        ("rank=1\ntitle=2", "--set rank: "),
    ],
)
def test_settings_that_cannot_be_meant(setting: str, why: str) -> None:
    with pytest.raises(UsageError) as caught:
        changed(read_recipe("rdr2-router"), [setting])
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)
