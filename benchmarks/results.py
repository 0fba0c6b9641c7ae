"""Keep what was measured as files, and write the tables of the documents from them.

    python benchmarks/results.py [--check]

A file of `docs/results/` is one run: `name`, `what`, `command`, `commit`, `date`, `machine`,
`model`, `n`, `rows` (of its table), `goals` and `notes`; what is not known is null, and `script_at`
is a commit that has a script which is gone. A document shows runs between `<!-- result: NAME -->`
(several names: one table) and `<!-- end -->`, and the goals of all runs at `<!-- goals -->`.
`--check` says which page differs from the files. The scripts here take their options with
`read_arguments`, print a figure with `say`, keep answers in `Rows`, and write a file with
`write_result`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "docs" / "results"
USUAL = ("2 cores without GPU, shared with other work", "November 2026")  # said once, on the page
PLACE = re.compile(r"<!-- (result: ([\w -]+)|goals) -->\n.*?<!-- end -->", re.DOTALL)

Row = dict[str, Any]


def read_arguments(doc: str, *places: str, **options: Any) -> argparse.Namespace:
    """Return the arguments of a script, whose docstring is its help.

    A place is a path, or `what`: one of "these|words". An option has its default, of a tuple the
    first of all it may be, or its type where there is no default; a list takes several values.
    """
    shown = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=doc, formatter_class=shown)
    for place in places:
        if "|" in place:
            parser.add_argument("what", choices=place.split("|"))
        else:
            parser.add_argument(place, type=Path)
    for name, value in options.items():
        match value:
            case bool():
                taken = {"action": "store_true"}
            case type():
                taken = {"type": value}
            case tuple():
                taken = {"choices": value, "default": value[0]}
            case list():
                taken = {"type": type(value[0]), "default": value, "nargs": "+"}
            case _:
                taken = {"type": type(value), "default": value}
        parser.add_argument(f"--{name}", **taken)
    return parser.parse_args()


def say(figure: str, value: float | None, unit: str, against: object = None) -> None:
    """Print one figure."""
    rounded = None if value is None else round(value, 3)
    line = {"figure": figure, "value": rounded, "unit": unit, "against": against}
    print(json.dumps(line, ensure_ascii=False), flush=True)


class Rows:
    """Keep a row for each answer, on disk at once: a run that was stopped resumes.

    `keys` identify a row.
    """

    def __init__(self, file: Path | None, keys: Sequence[str]) -> None:
        self._file, self._keys = file, keys
        self._rows: dict[tuple[Any, ...], Row] = {}
        if file is not None and file.exists():
            for line in file.read_text("utf-8").splitlines():
                row = json.loads(line)
                self._rows[self._key(row)] = row

    def __contains__(self, row: Row) -> bool:
        return self._key(row) in self._rows

    @property
    def all(self) -> list[Row]:
        """Return every row."""
        return list(self._rows.values())

    def add(self, row: Row) -> None:
        """Keep a row."""
        self._rows[self._key(row)] = row
        if self._file is not None:
            with self._file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(row, ensure_ascii=False) + "\n")

    def _key(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[key] for key in self._keys)


def write_result(
    file: Path, what: str, *, model: str | None, n: int | None, rows: Sequence[Row], **more: Any
) -> None:
    """Write the run of this process as a file of `docs/results/`; its name is that of the file."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
    )
    made = {
        "name": file.stem,
        "what": what,
        "command": shlex.join(["python", *sys.argv]),
        "commit": commit.stdout.strip() or None,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "model": model,
        "n": n,
        "rows": list(rows),
    }
    file.write_text(dump_run(made | more), "utf-8")


def dump_run(run: Row) -> str:
    """Return a run as JSON with a line for each key, and for each row of a table."""
    lines = []
    for key, value in run.items():
        text = json.dumps(value, ensure_ascii=False)
        if value and isinstance(value, list):
            rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in value)
            text = f"[\n{rows}\n ]"
        lines.append(f" {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load_results() -> dict[str, Row]:
    """Return every run by its name."""
    runs = [json.loads(path.read_text("utf-8")) for path in sorted(RESULTS.glob("*.json"))]
    return {run["name"]: run for run in runs}


def render_page(page: str, runs: dict[str, Row]) -> str:
    """Return a page with its tables written anew."""
    shown = [name for _, names in PLACE.findall(page) for name in names.split()]

    def fill(place: re.Match[str]) -> str:
        if place[2]:
            inside = render_runs([runs[name] for name in place[2].split()])
        else:
            inside = render_goals([runs[name] for name in dict.fromkeys([*shown, *runs])])
        return f"<!-- {place[1]} -->\n{inside}\n<!-- end -->"

    return PLACE.sub(fill, page)


def render_runs(runs: Sequence[Row]) -> str:
    """Return one table of the rows of these runs, and what each was made with."""
    rows = [row for run in runs for row in run["rows"]]
    columns = list(dict.fromkeys(column for row in rows for column in row))
    table = render_table(columns, [[row.get(column, "") for column in columns] for row in rows])
    return "\n\n".join([table, *dict.fromkeys(map(render_origin, runs))])


def render_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = ["| " + " | ".join(map(str, line)) + " |" for line in [columns, *rows]]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def render_origin(run: Row) -> str:
    """Return in one line how a run was made, without what is not known."""
    made = [
        f"n {run['n']:,}" if run["n"] else None,
        f"`{run['model']}`" if run["model"] else None,
        *(run[key] for key in ("machine", "date") if run[key] not in USUAL),
        f"commit {run['commit']}" if run["commit"] else None,
        f"`{run['command']}`" if run["command"] else None,
        f"script of commit {run['script_at']}" if "script_at" in run else None,
    ]
    notes = f" {run['notes']}" if run.get("notes") else ""
    return "*" + "; ".join(each for each in made if each) + ".*" + notes


def render_goals(runs: Sequence[Row]) -> str:
    """Return a table of the goals of these runs that were missed, and how many were met."""
    goals = [(run["name"], goal) for run in runs for goal in run.get("goals", ())]
    missed = [
        [f"[{goal['what']}](results/{name}.json)", goal["goal"], goal["measured"]]
        for name, goal in goals
        if not goal["met"]
    ]
    table, met = render_table(["missed", "goal", "measured"], missed), len(goals) - len(missed)
    return f"{table}\n\n{met} goals were met: `goals` of the result files has them."


def main() -> None:
    """Write the tables of all documents, or say which are not those of the files."""
    check = read_arguments(__doc__, check=False).check
    runs, differ = load_results(), []
    for path in sorted((ROOT / "docs").glob("*.md")):
        page = path.read_text("utf-8")
        if (written := render_page(page, runs)) != page:
            differ.append(str(path.relative_to(ROOT)))
            if not check:
                path.write_text(written, "utf-8")
    print("\n".join(differ) if differ else "all tables are what the files say")
    sys.exit(bool(check and differ))


if __name__ == "__main__":
    main()
