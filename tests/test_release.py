"""The files that a release is made of agree."""

import json
import re
import tomllib
from pathlib import Path

import colligate

ROOT = Path(__file__).parents[1]
SERVER = json.loads((ROOT / "server.json").read_text("utf-8"))


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M)
    packages = {package["version"] for package in SERVER["packages"]}
    assert cited
    assert {project["version"], cited[1], SERVER["version"], *packages} == {colligate.__version__}


def test_the_readme_proves_to_the_mcp_registry_that_the_package_is_ours():
    assert f"mcp-name: {SERVER['name']}" in (ROOT / "README.md").read_text("utf-8")
