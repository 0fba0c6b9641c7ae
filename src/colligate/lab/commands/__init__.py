"""The commands `bench` and `train`."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any


def pick(options: Any, kind: type) -> dict[str, Any]:
    """Return the options that a request of a kind has fields of the same name for."""
    wanted = {each.name for each in fields(kind)}
    return {
        each.name: getattr(options, each.name) for each in fields(options) if each.name in wanted
    }


def record_options(options: Any) -> dict[str, Any]:
    """Return the options that have a value, as JSON, by the names of the command line."""
    values = {each.name: getattr(options, each.name) for each in fields(options)}
    return {
        "set" if name == "parameters" else name: str(value) if isinstance(value, Path) else value
        for name, value in values.items()
        if value is not None and value is not False
    }
