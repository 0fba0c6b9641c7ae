"""Question answering over many long documents, every claim cited to its exact place.

from colligate import ask
print(ask("Which leases end this year?", "contracts/"))
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
    from colligate.core.fit import fit_window as fit_window
    from colligate.core.prompts import escape as escape
    from colligate.core.run import Run as Run
    from colligate.core.run import Shown as Shown
    from colligate.core.run import show_ranked as show_ranked
    from colligate.core.strategy import Needs as Needs
    from colligate.core.strategy import Strategy as Strategy
    from colligate.documents import Document as Document
    from colligate.documents import Hit as Hit
    from colligate.documents import Page as Page
    from colligate.documents import Passage as Passage
    from colligate.documents import Span as Span
    from colligate.documents import Tree as Tree
    from colligate.engine import Engine as Engine
    from colligate.errors import ColligateError as ColligateError
    from colligate.library.in_memory import InMemorySources as InMemorySources
    from colligate.library.library import AsyncLibrary as AsyncLibrary
    from colligate.library.sources import Sources as Sources
    from colligate.readers.followup import Turn as Turn
    from colligate.settings import Settings as Settings
    from colligate.strategies.longrefiner import LongRefiner as LongRefiner
    from colligate.strategies.rdr2.method import RDR2 as RDR2
    from colligate.sync import Library as Library
    from colligate.sync import ask as ask

__version__ = "0.1.0"

# The public names of each module; `colligate --help` does not import them.
_NAMES = {
    "core.answer": ("Answer", "Citation", "Evidence", "Form", "Refined"),
    "core.events": ("Event",),
    "core.fit": ("fit_window",),
    "core.prompts": ("escape",),
    "core.run": ("Run", "Shown", "show_ranked"),
    "core.strategy": ("Needs", "Strategy"),
    "documents": ("Document", "Hit", "Page", "Passage", "Span", "Tree"),
    "engine": ("Engine",),
    "errors": ("ColligateError",),
    "library.in_memory": ("InMemorySources",),
    "library.library": ("AsyncLibrary",),
    "library.sources": ("Sources",),
    "readers.followup": ("Turn",),
    "settings": ("Settings",),
    "strategies.longrefiner.method": ("LongRefiner",),
    "strategies.rdr2.method": ("RDR2",),
    "sync": ("Library", "ask"),
}
_HOME = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [*_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'colligate' has no attribute {name!r}")
    return getattr(import_module(f"colligate.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
