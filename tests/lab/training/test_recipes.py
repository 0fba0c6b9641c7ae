"""Recipes: those of the papers, and changes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from colligate.errors import UsageError
from colligate.lab.training.recipes import (
    apply_settings,
    list_recipes,
    parse_recipe,
    read_recipe,
)

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


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(LEAST, "utf-8")
    recipe = read_recipe(file)
    assert (recipe.name, recipe.text, recipe.tasks) == ("mine", LEAST, ("router",))
    assert read_recipe(str(file)) == recipe


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('title = "One"', 'title = "One"\nrnk = 4', "rnk: unknown key"),
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
    as_toml = apply_settings(recipe, ['targets=["q_proj", "v_proj"]', 'schedule="linear"'])
    assert (as_toml.targets, as_toml.schedule) == (made.targets, "linear")
    assert (made.name, made.text) == (recipe.name, recipe.text)
    assert apply_settings(recipe, []) == recipe


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("rank", "--set rank: expected NAME=VALUE"),
        ("rnk=4", "--set rnk=4: there is no such setting; there are tasks, "),
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
