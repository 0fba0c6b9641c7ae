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
from colligate.settings import Settings
from colligate.strategies.dualrag import DualRAG
from colligate.strategies.longrefiner import LongRefiner
from colligate.strategies.rdr2 import RDR2

GUIDE = (Path(__file__).parents[3] / "docs" / "training.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE, re.DOTALL)


def test_its_suite_runs_and_its_settings_are_read(tmp_path: Path) -> None:
    suite, settings = blocks("toml")
    taking_part = configure_entries(parse_suite(suite, "adapters", "adapters.toml"))
    assert [each.method.name for each in taking_part] == ["rdr2", "tagged", "adapted"]
    (tmp_path / "colligate.toml").write_text(settings, encoding="utf-8")
    loaded = Settings.load(tmp_path / "colligate.toml")
    steps = [step for kind in (RDR2, LongRefiner, DualRAG) for step in loaded.adapters_of(kind)]
    assert steps == [f"{step}_adapter" for step in loaded.adapters]
    assert len(steps) == 7


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
