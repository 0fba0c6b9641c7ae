"""What all methods share. These names are enough to write a method (docs/extending.md).

Each is imported at its first use, so that a program which needs one does not load all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.core.answer import Answer as Answer
    from colligate.core.answer import Citation as Citation
    from colligate.core.answer import Evidence as Evidence
    from colligate.core.answer import Form as Form
    from colligate.core.answer import Refined as Refined
    from colligate.core.events import Event as Event
    from colligate.core.events import Trace as Trace
    from colligate.core.fit import fit_window as fit_window
    from colligate.core.parameters import require_min as require_min
    from colligate.core.prompts import escape as escape
    from colligate.core.run import Run as Run
    from colligate.core.run import Shown as Shown
    from colligate.core.run import show_ranked as show_ranked
    from colligate.core.strategy import Calls as Calls
    from colligate.core.strategy import Needs as Needs
    from colligate.core.strategy import Strategy as Strategy
    from colligate.core.strategy import list_strategies as list_strategies

_NAMES = {
    "answer": ("Answer", "Citation", "Evidence", "Form", "Refined"),
    "events": ("Event", "Trace"),
    "fit": ("fit_window",),
    "parameters": ("require_min",),
    "prompts": ("escape",),
    "run": ("Run", "Shown", "show_ranked"),
    "strategy": ("Calls", "Needs", "Strategy", "list_strategies"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate.core' has no attribute {name!r}")
    return getattr(import_module(f"colligate.core.{_HOME[name]}"), name)
