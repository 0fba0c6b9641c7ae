"""What all methods share. These names are enough to write a method (docs/extending.md).

Each is imported at its first use, so that a program which needs one does not load all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.core.answer import Answer, Refined
    from colligate.core.citing import Citation, Evidence
    from colligate.core.events import Event, Trace
    from colligate.core.fit import fit_budget, fit_window
    from colligate.core.parameters import require_min
    from colligate.core.prompts import escape
    from colligate.core.reader import Form, fit_reader, read, read_best_first
    from colligate.core.run import Run
    from colligate.core.strategy import Calls, Needs, Strategy, list_strategies, make_strategy

__all__ = [
    "Answer",
    "Calls",
    "Citation",
    "Event",
    "Evidence",
    "Form",
    "Needs",
    "Refined",
    "Run",
    "Strategy",
    "Trace",
    "escape",
    "fit_budget",
    "fit_reader",
    "fit_window",
    "list_strategies",
    "make_strategy",
    "read",
    "read_best_first",
    "require_min",
]

_HOME = {
    **dict.fromkeys(("Answer", "Refined"), "answer"),
    **dict.fromkeys(("Event", "Trace"), "events"),
    **dict.fromkeys(("fit_budget", "fit_window"), "fit"),
    **dict.fromkeys(("Form", "fit_reader", "read", "read_best_first"), "reader"),
    **dict.fromkeys(("Calls", "Needs", "Strategy", "list_strategies", "make_strategy"), "strategy"),
    **dict.fromkeys(("Citation", "Evidence"), "citing"),
    "require_min": "parameters",
    "escape": "prompts",
    "Run": "run",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate.core' has no attribute {name!r}")
    return getattr(import_module(f"colligate.core.{_HOME[name]}"), name)
