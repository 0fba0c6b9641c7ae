"""What docs/training.md shows can be done as it stands there, and importing it is cheap."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from colligate.lab.bench.plan import configure_entries
from colligate.lab.bench.suites import parse_suite
from colligate.lab.training.recipes import list_recipes
from colligate.lab.training.scores import STEPS

GUIDE = (Path(__file__).parents[3] / "docs" / "training.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_its_suite_runs() -> None:
    (suite,) = blocks("toml")
    taking_part = configure_entries(parse_suite(suite, "adapters", "adapters.toml"))
    assert [each.method.name for each in taking_part] == ["rdr2", "tagged", "adapted"]


def test_its_python_names_what_there_is() -> None:
    [code] = blocks("python")
    tree = ast.parse(code)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert len(imports) > 2
    exec(compile(ast.Module(imports, []), "guide", "exec"), {})


@pytest.mark.parametrize("task", STEPS)
def test_it_tells_every_task_and_recipe(task: str) -> None:
    assert f"| `{task}`" in GUIDE
    for name in list_recipes():
        assert name.removesuffix("-small").rpartition("-")[2] in GUIDE
