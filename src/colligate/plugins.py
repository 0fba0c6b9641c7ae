"""Plug-ins: what other packages add to colligate by an entry point.

    [project.entry-points."colligate.strategies"]
    my-method = "my_package:MyMethod"

Groups are `colligate.strategies`, `.models`, `.formats`, `.datasets` and `.metrics`
(docs/extending.md). colligate registers its own strategies in the same way.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points


@cache
def plugins(kind: str) -> dict[str, EntryPoint]:
    """Return the entry points of `colligate.KIND` by name; nothing is loaded."""
    found = sorted(entry_points(group=f"colligate.{kind}"), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found}
