"""Packages that only some metrics need, imported when one of these is measured."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from colligate.errors import MissingExtra


def extra(module: str) -> Any:
    """A package of the extra `bench`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"this metric needs {module.partition('.')[0]}",
            f"{error.name or 'it'} is not installed",
            "pip install 'colligate[bench]'",
        ) from error
