"""What all methods share. These names are enough to write a method (docs/extending.md).

Each is imported at its first use, so that a program which needs one does not load all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.core.answer import Answer, Citation, Evidence, Form, Refined
    from colligate.core.events import Event, Trace
    from colligate.core.fit import fit_budget, fit_window
    from colligate.core.parameters import require_min
    from colligate.core.prompts import escape
    from colligate.core.run import Run, Shown, show_ranked
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
    "Shown",
    "Strategy",
    "Trace",
    "escape",
    "fit_budget",
    "fit_window",
    "list_strategies",
    "make_strategy",
    "require_min",
    "show_ranked",
]

_HOME = {
    **dict.fromkeys(("Answer", "Citation", "Evidence", "Form", "Refined"), "answer"),
    **dict.fromkeys(("Event", "Trace"), "events"),
    **dict.fromkeys(("fit_budget", "fit_window"), "fit"),
    **dict.fromkeys(("Calls", "Needs", "Strategy", "list_strategies", "make_strategy"), "strategy"),
    **dict.fromkeys(("Run", "Shown", "show_ranked"), "run"),
    "require_min": "parameters",
    "escape": "prompts",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate.core' has no attribute {name!r}")
    return getattr(import_module(f"colligate.core.{_HOME[name]}"), name)
