"""The commands `bench` and `train`."""

from __future__ import annotations

from dataclasses import fields
from typing import Any


def pick(options: Any, kind: type) -> dict[str, Any]:
    """Return the options that a request of a kind has fields of the same name for."""
    wanted = {each.name for each in fields(kind)}
    return {
        each.name: getattr(options, each.name) for each in fields(options) if each.name in wanted
    }
