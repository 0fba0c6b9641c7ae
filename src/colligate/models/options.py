"""How a model can be opened differently: the options each backend takes, and their types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from colligate.errors import closest
from colligate.models.name_parts import parts, split_adapter

Options = Mapping[str, Any]

_ENDPOINT: Mapping[str, type] = {"context_tokens": int, "in_flight": int, "timeout": float}
_LLAMACPP: Mapping[str, type] = {"context_tokens": int, "parallel": int, "threads": int}

OPTIONS: Mapping[str, Mapping[str, type]] = {
    "bundled": _LLAMACPP,
    "gguf": _LLAMACPP,
    "hf": {"context_tokens": int, "parallel": int, "device": str, "dtype": str},
    "openai": _ENDPOINT,
    "ollama": _ENDPOINT,
}
"""Backend -> option -> type. Numbers are above 0; `timeout` is seconds without a byte arriving."""

_SAID = {int: "a whole number above 0", float: "a number above 0", str: "a text"}


def wrong_option(name: str, option: str, value: Any) -> tuple[str, str] | None:
    """Why a model of this name cannot take an option, and a hint; None when it can."""
    kind, _ = parts(name)
    takes = OPTIONS.get(kind)
    if takes is None:
        return f"{name} is no model that takes options", f"those are {', '.join(OPTIONS)}"
    base, adapter = split_adapter(name)
    if adapter is not None:
        return "an adapter is opened as its base is", f"give the options to {base}"
    if option not in takes:
        near = closest(option, takes)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(takes)}"
        return f"{kind} models take no such option", hint
    wanted = takes[option]
    right = isinstance(value, (int, float) if wanted is float else wanted)
    if not right or isinstance(value, bool) or (wanted is not str and not value > 0):
        return f"it is not {_SAID[wanted]}", ""
    return None
