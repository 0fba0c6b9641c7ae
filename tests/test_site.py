"""The site that `make site` builds has every page, public name and command."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import colligate
from colligate.cli.app import COMMANDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]


def pages_of(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [page for each in below for page in pages_of(each)]


def test_the_site_is_complete_and_loads_nothing_from_elsewhere():
    command = [sys.executable, "docs/site.py"]  # a broken link or anchor ends it
    done = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    site = ROOT / PROJECT["site_dir"]
    html = {page.parent.name: page.read_text("utf-8") for page in site.rglob("index.html")}
    listed = set(pages_of(PROJECT["nav"]))
    assert {Path(page).stem for page in listed} - {"index", "README"} <= html.keys()
    docs = {page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")}
    assert {page for page in docs if not page.startswith("decisions/0")} <= listed
    shown = set(re.findall(r'id="colligate\.(\w+)"', html["python"]))
    assert shown >= set(colligate.__all__)
    assert set(re.findall(r'<h2 id="(\w+)"', html["commands"])) == COMMANDS.keys()
    for page in html.values():
        assert not re.search(r"<(?:script|img)[^>]*src=\"?https?:|@import", page)
        assert not re.search(r"<link[^>]*stylesheet[^>]*href=\"?https?:", page)
