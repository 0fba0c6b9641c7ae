"""Plug-ins as other packages install them: a module and its entry points in a folder."""

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from colligate.plugins import plugins


def write_plugin(
    folder: Path, source: str, entry_points: Mapping[str, Mapping[str, str]], module: str = "toy"
) -> Path:
    """Write MODULE.py and a dist-info with entry points; whoever has `folder` on its path has both.

    `entry_points` are by kind, e.g. `{"strategies": {"toy": "toy:Toy"}}`.
    """
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / f"{module}.py").write_text(dedent(source), "utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    lines = []
    for kind, entries in entry_points.items():
        lines.append(f"[colligate.{kind}]")
        lines += [f"{name} = {target}" for name, target in entries.items()]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@contextmanager
def installed(
    folder: Path, source: str, entry_points: Mapping[str, Mapping[str, str]], module: str = "toy"
) -> Iterator[None]:
    """Install a plug-in in this process until the block ends."""
    with in_use(write_plugin(folder, source, entry_points, module)):
        yield


@contextmanager
def in_use(folder: Path) -> Iterator[None]:
    """Put a folder with plug-ins on this process's path until the block ends."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    plugins.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for file in folder.glob("*.py"):
            if file.stem not in before:
                sys.modules.pop(file.stem, None)
        importlib.invalidate_caches()
        plugins.cache_clear()


def environment_with(folder: Path) -> dict[str, str]:
    """Return the environment of a subprocess that has a written plug-in installed."""
    path = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{path}" if path else str(folder)}


TOY_STRATEGY = """
    from dataclasses import dataclass
    from typing import ClassVar

    from colligate.core.answer import Answer
    from colligate.core.events import Event
    from colligate.core.run import Run
    from colligate.core.strategy import Needs
    from colligate.documents import Span


    @dataclass(frozen=True)
    class Sorted(Event):
        \"\"\"Documents in the order of their titles.\"\"\"

        spans: tuple[Span, ...]

        def line(self) -> str:
            return f"titles in order: {len(self.spans)}"


    @dataclass(frozen=True)
    class Toy:
        \"\"\"Name the first document.

        Attributes:
            backwards: begin with the last title
        \"\"\"

        name: ClassVar[str] = "toy"
        needs: ClassVar[Needs] = Needs(searches=False)
        backwards: bool = False

        async def answer(self, question: str, run: Run) -> Answer:
            found = await run.sources.documents()
            infos = sorted(found, key=lambda info: info.title, reverse=self.backwards)
            run.emit(Sorted(tuple(Span(info.id, 0, 1) for info in infos)))
            return Answer(question, self.name, infos[0].title, True)
"""
TOY_ENTRY_POINTS = {"strategies": {"toy": "toy:Toy"}}
"""A strategy that no part of colligate knows."""
