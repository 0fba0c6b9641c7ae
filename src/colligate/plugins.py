"""Plug-ins: what other packages add to colligate by an entry point.

    [project.entry-points."colligate.strategies"]
    my-method = "my_package:MyMethod"

Groups are `colligate.strategies`, `.retrievers`, `.models`, `.formats`, `.datasets` and `.metrics`
(docs/extending.md), and for its own lab and scale `.commands`, `.stores`, `.workers`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from colligate.errors import ColligateError, UsageError


@cache
def plugins(kind: str) -> dict[str, EntryPoint]:
    """Return the entry points of `colligate.KIND` by name; nothing is loaded."""
    found = sorted(entry_points(group=f"colligate.{kind}"), key=lambda entry: entry.name)
    return {entry.name: entry for entry in found}


def load_plugin(kind: str, name: str, expected: type = object) -> Any:
    """Load what is registered under a name.

    UsageError if it cannot be imported, or is not an instance of `expected`.
    """
    entry = plugins(kind)[name]
    failed = f"cannot load {name!r} of colligate.{kind} ({entry.value})"
    hint = "reinstall or remove the package that provides it"
    try:
        loaded = entry.load()
    except ColligateError:
        raise
    except Exception as error:  # whatever the other package raises while it is imported
        raise UsageError(failed, f"{type(error).__name__}: {error}", hint) from error
    if not isinstance(loaded, expected):
        why = f"expected a {expected.__name__}, got a {type(loaded).__name__}"
        raise UsageError(failed, why, hint)
    return loaded
