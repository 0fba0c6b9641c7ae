"""LoRA adapters over one base model, through peft."""

from __future__ import annotations

from typing import Any


class Adapters:
    """The adapters loaded into a model, by name; one, or none, is in force at a time."""

    def __init__(self, model: Any, name: str) -> None:
        self._model = model
        self._name = name
        self._loaded: set[str] = set()
        self._used = ""

    def use(self, adapter: str = "") -> None:
        """Compute with this adapter from now on; "" is the base model alone."""
        if adapter == self._used:
            return
        raise NotImplementedError
