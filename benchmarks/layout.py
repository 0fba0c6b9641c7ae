"""Print the layout in figures: one JSON object about the code base.

    python benchmarks/layout.py [--names]

`lines` are those of the product, of `colligate.lab`, of `colligate.scale`, of tests and benchmarks;
`words` those of the documents (README, CHANGELOG and docs, as `wc -w` counts). `over_600` counts
files of more lines. `single_importer` counts the modules that exactly one other module imports, an
`__init__` that only re-exports not counted. Plug-ins do not count (those of the entry points, and
commands, routes, data sets, metrics, readers and backends, whose one importer is the registry of
their kind), nor do the files of a method's folder. `over_six_parameters` counts functions of more,
without `self`; `over_six_options` the functions of commands, whose parameters are their options.
`defined_twice` counts public classes and functions that two modules define. `frames` counts our own
functions on the stack of a `colligate ask` at the moment its request is posted. `to_read` counts
the lines of a method's folder and of all modules of `core` and `readers` behind it; `fields` are
those of its class. `--names` prints the lists, not the counts.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from results import ROOT, read_arguments

SOURCE = ROOT / "src" / "colligate"
# Modules that import one module of each kind and look it up by name; how their names end.
REGISTRIES = (
    ".cli.app",
    ".server.app",
    ".bench.datasets",
    ".bench.metrics.catalogue",
    ".documents.reading",
    ".models.names",
)
MOST_LINES, MOST_PARAMETERS = 600, 6

METHODS = [path.parent.name for path in sorted(SOURCE.glob("strategies/*/method.py"))]

FRAMES = """
import json, os, sys
import openai._base_client as client

async def post(self, path, **_):
    found, frame = [], sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith({source!r}):
            found.append(name[len({source!r}) + 1 :] + ":" + frame.f_code.co_qualname)
        frame = frame.f_back
    print(json.dumps(found[::-1]), flush=True)
    os._exit(0)

client.AsyncAPIClient.post = post
sys.argv = ["colligate", "ask", "Who may copy it?", {document!r}, "--model",
            "openai:reader@http://127.0.0.1:9/v1", "--library", sys.argv[1]]
from colligate.cli import main
main()
"""


def main() -> None:
    """Print the figures."""
    names = read_arguments(__doc__, names=False).names
    trees = {name: ast.parse(path.read_text("utf-8")) for name, path in list_modules().items()}
    twice = {name: sorted(where) for name, where in sorted(list_defined_twice(trees).items())}
    wide, commands = list_wide_functions(trees)
    lists: dict[str, Any] = {
        "over_600": [f"{each} {n}" for each in trees if (n := count_lines(each)) > MOST_LINES],
        "over_six_parameters": wide,
        "over_six_options": commands,
        "single_importer": sorted(list_single_importers(trees)),
        "defined_twice": twice,
        "frames": list_frames(),
    }
    files, lines = count_by_package("files"), count_by_package("lines")
    read = {name: list_to_read(f"colligate.strategies.{name}", trees) for name in METHODS}
    figures = {
        "files": len(trees),
        "lines": count_parts(),
        "words": count_words(),
        **(lists if names else {name: len(found) for name, found in lists.items()}),
        "packages": {n: {"files": files[n], "lines": lines[n]} for n in sorted(files)},
        "to_read": {name: sum(map(count_lines, modules)) for name, modules in read.items()},
        "fields": {name: count_fields(name, trees) for name in METHODS},
    }
    print(json.dumps(figures, indent=2))


def count_parts() -> dict[str, int]:
    """Return the lines of Python by part: product, lab, scale, tests, benchmarks."""
    packages = count_by_package("lines")
    parts = {name: packages[name] for name in ("lab", "scale")}
    parts = {"product": packages.total() - sum(parts.values()), **parts}
    for folder in ("tests", "benchmarks"):
        files = (ROOT / folder).rglob("*.py")
        parts[folder] = sum(len(file.read_text("utf-8").splitlines()) for file in files)
    return parts


def count_words() -> int:
    """Return the words of README, CHANGELOG and all Markdown below docs."""
    files = [ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")]
    return sum(len(path.read_text("utf-8").split()) for path in files)


def list_wide_functions(trees: dict[str, ast.Module]) -> tuple[list[str], list[str]]:
    """Return the functions with too many parameters, and the commands among them apart."""
    functions, commands = [], []
    for module, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                count = sum(each.arg not in ("self", "cls") for each in given)
                if count > MOST_PARAMETERS:
                    into = commands if node.name.endswith("_command") else functions
                    into.append(f"{module}.{node.name} {count}")
    return sorted(functions), sorted(commands)


def list_imported(tree: ast.Module, trees: dict[str, ast.Module]) -> set[str]:
    """Return the modules of this package that a module imports."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in trees else node.module)
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & trees.keys()


def list_to_read(package: str, trees: dict[str, ast.Module]) -> set[str]:
    """Return a method's modules and those of `core` and `readers` behind them."""
    left = {name for name in trees if name == package or name.startswith(f"{package}.")}
    found: set[str] = set()
    while left:
        name = left.pop()
        found.add(name)
        behind = list_imported(trees[name], trees) - found
        left |= {each for each in behind if each.split(".")[1] in ("core", "readers")}
    return found


def count_lines(module: str) -> int:
    """Return the lines of a module."""
    return len(list_modules()[module].read_text("utf-8").splitlines())


def count_fields(method: str, trees: dict[str, ast.Module]) -> int:
    """Return the most fields to set of a class in a method's file with a name to be asked by."""
    fields = [
        sum(
            isinstance(each, ast.AnnAssign)
            and not any(no in ast.unparse(each) for no in ("ClassVar", "init=False"))
            for each in node.body
        )
        for node in trees[f"colligate.strategies.{method}.method"].body
        if isinstance(node, ast.ClassDef) and "name: ClassVar" in ast.unparse(node)
    ]
    return max(fields, default=0)


def list_modules() -> dict[str, Path]:
    """Return every module's file by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


def count_by_package(what: str) -> Counter[str]:
    """Count files or lines by top-level package."""
    found: Counter[str] = Counter()
    for path in list_modules().values():
        inside = path.relative_to(SOURCE).parts
        package = inside[0] if len(inside) > 1 else "."
        found[package] += 1 if what == "files" else len(path.read_text("utf-8").splitlines())
    return found


def list_single_importers(trees: dict[str, ast.Module]) -> Iterator[str]:
    """Yield modules with exactly one importer that are not plug-ins."""
    importers = defaultdict(set)
    for name, tree in trees.items():
        reexports = list_modules()[name].name == "__init__.py"
        for target in list_imported(tree, trees):
            if not (reexports and target.startswith(f"{name}.")):
                importers[target].add(name)
    plugins = re.findall(r'= "(colligate[\w.]*):', (ROOT / "pyproject.toml").read_text("utf-8"))
    for name, where in importers.items():
        in_method = ".strategies." in name
        plugin = name in plugins or any(each.endswith(REGISTRIES) for each in where)
        if len(where) == 1 and not in_method and not plugin:
            yield f"{name} <- {next(iter(where))}"


def list_defined_twice(trees: dict[str, ast.Module]) -> dict[str, set[str]]:
    """Return public classes and functions that two modules define at their top level."""
    found = defaultdict(set)
    for name, tree in trees.items():
        for node in tree.body:
            defines = isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if defines and not node.name.startswith("_"):
                found[node.name].add(name)
    return {name: where for name, where in found.items() if len(where) > 1}


def list_frames() -> list[str]:
    """Return our functions between the command line and the model's request."""
    document = str(ROOT / "examples" / "licences" / "CC0-1.0.txt")
    code = FRAMES.format(source=str(SOURCE), document=document)
    with tempfile.TemporaryDirectory() as library:
        done = subprocess.run(
            [sys.executable, "-c", code, library], capture_output=True, text=True, cwd=library
        )
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if not lines:
        raise SystemExit(f"no request was posted:\n{done.stderr}")
    stack: list[str] = json.loads(lines[-1])
    return stack


if __name__ == "__main__":
    main()
