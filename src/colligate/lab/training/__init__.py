"""Train the small models that strategies ask: curate samples, fit adapters, evaluate them.

Everything is imported at its first use; `fit` needs the extra `train`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.lab.training.curation import Curation
    from colligate.lab.training.dualrag import curate_dualrag
    from colligate.lab.training.evaluation import Evaluation, evaluate
    from colligate.lab.training.fitting import fit
    from colligate.lab.training.longrefiner import curate_longrefiner
    from colligate.lab.training.rdr2 import curate_rdr2

__all__ = [
    "Curation",
    "Evaluation",
    "curate_dualrag",
    "curate_longrefiner",
    "curate_rdr2",
    "evaluate",
    "fit",
]

_HOME = {
    **dict.fromkeys(("Evaluation", "evaluate"), "evaluation"),
    **{f"curate_{system}": system for system in ("dualrag", "longrefiner", "rdr2")},
    **{"Curation": "curation", "fit": "fitting"},
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate.lab.training' has no attribute {name!r}")
    return getattr(import_module(f"colligate.lab.training.{_HOME[name]}"), name)
