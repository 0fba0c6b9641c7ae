"""Build the site: the pages of docs/, the README, the notebooks and the reference. See `make site`.

The reference is written here from the docstrings of what `colligate` exports, and from the help of
every command.
"""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import colligate
from colligate.cli import main as run_command
from colligate.cli.app import COMMANDS, load_command

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "build/pages"
SOURCE = "https://github.com/colligate/colligate/blob/main/"


def main() -> None:
    """Write the pages to build/pages, and the site to build/site; a broken link is an error."""
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    readme = (ROOT / "README.md").read_text("utf-8")
    outside = re.sub(r"\]\((?!https?:|docs/|#)", "](../", readme)
    write("index.md", outside.replace("](docs/", "]("))
    names = "\n".join(f"::: colligate.{name}\n" for name in colligate.__all__)
    write("reference/python.md", f"# Python\n\n{names}")
    write("reference/commands.md", "\n".join(["# Commands\n", *list_commands()]))
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        shown = "\n\n".join(read_cells(notebook))
        write(f"notebooks/{notebook.stem}.md", shown.replace("](../docs/", "](../"))
    for page in PAGES.rglob("*.md"):  # what is not in docs/ is in the repository
        up = "../" * len(page.relative_to(PAGES).parts)
        page.write_text(page.read_text("utf-8").replace(f"]({up}", f"]({SOURCE}"), "utf-8")
    build = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    raise SystemExit(subprocess.run(build, cwd=ROOT, check=False).returncode)


def write(name: str, text: str) -> None:
    """Write a page."""
    (PAGES / name).parent.mkdir(exist_ok=True)
    (PAGES / name).write_text(text, "utf-8")


def list_commands() -> Iterator[str]:
    """Yield a section for each command, with its help."""
    # Typer takes the log of a CI for a terminal.
    os.environ |= {"COLUMNS": "104", "_TYPER_FORCE_DISABLE_TERMINAL": "1"}
    for name in COMMANDS:
        below = getattr(load_command(name), "commands", {})
        yield f"## {name}\n\n{help_of(name, '--help' if below else '--help-all')}"
        for each in below:
            yield f"### {name} {each}\n\n{help_of(name, each, '--help-all')}"


def help_of(*words: str) -> str:
    """Return what a command prints about itself, as Markdown."""
    with redirect_stdout(io.StringIO()) as printed:
        run_command(words)
    return f"```\n{printed.getvalue().strip()}\n```\n"


def read_cells(notebook: Path) -> Iterator[str]:
    """Yield the cells of a notebook and what they printed, as Markdown."""
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        for output in cell.get("outputs", ()):
            shown = output.get("data", {})
            plain = "".join(shown.get("text/plain", output.get("text", ())))
            yield "".join(shown.get("text/html", f"```\n{plain}\n```"))


if __name__ == "__main__":
    main()
