"""Train the small models that strategies ask: curate samples, fit adapters, evaluate them.

Everything is imported at its first use; `fit` and `train_head` need the extra `train`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from colligate.training.curation import Curation
    from colligate.training.dualrag import curate_dualrag
    from colligate.training.evaluation import Evaluation, evaluate
    from colligate.training.fitting import fit
    from colligate.training.heads import train_head
    from colligate.training.longrefiner import curate_longrefiner
    from colligate.training.rdr2 import curate_rdr2
    from colligate.training.recipes import export_llama_factory, list_recipes, read_recipe
    from colligate.training.samples import Card, Sample, read_card, read_samples, write_samples

__all__ = [
    "Card",
    "Curation",
    "Evaluation",
    "Sample",
    "curate_dualrag",
    "curate_longrefiner",
    "curate_rdr2",
    "evaluate",
    "export_llama_factory",
    "fit",
    "list_recipes",
    "read_card",
    "read_recipe",
    "read_samples",
    "train_head",
    "write_samples",
]

_HOME = {
    **dict.fromkeys(("Card", "Sample", "read_card", "read_samples", "write_samples"), "samples"),
    **dict.fromkeys(("Evaluation", "evaluate"), "evaluation"),
    **dict.fromkeys(("export_llama_factory", "list_recipes", "read_recipe"), "recipes"),
    **{f"curate_{system}": system for system in ("dualrag", "longrefiner", "rdr2")},
    **{"Curation": "curation", "fit": "fitting", "train_head": "heads"},
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate.training' has no attribute {name!r}")
    return getattr(import_module(f"colligate.training.{_HOME[name]}"), name)
