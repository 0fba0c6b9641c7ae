"""A group of metrics that are taken together."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from colligate.bench.metrics.backends import Backends
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question
from colligate.errors import MissingExtra

Measures = Mapping[str, float]
"""Values by the metric's name."""


@dataclass(frozen=True)
class MetricGroup:
    """Metrics that are taken together, in one of three ways.

    `compute` makes them of a question and its outcome, `ask` asks a model for them, and `of_run`
    makes them of all answers of a strategy at once. The first two return None where they do not
    apply to such a question. `needs` is the model that `ask` asks; `modules` are packages that
    must be installed (the extra `bench`). Only a group that is `always` taken is taken of a
    question that the documents do not answer. Lower values are better of the metrics that begin
    with one of `lower`, and neither higher nor lower ones of those in `neutral`. Other packages
    register groups under the entry-point group `colligate.metrics`.
    """

    name: str
    about: str
    source: str = ""
    compute: Callable[[Question, Outcome], Measures | None] | None = None
    ask: Callable[[Question, Outcome, Backends], Awaitable[Measures | None]] | None = None
    of_run: Callable[[Sequence[tuple[Question, Outcome]]], Measures] | None = None
    needs: Literal["", "judge", "nli", "qa"] = ""
    modules: tuple[str, ...] = ()
    always: bool = False
    lower: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()


def import_extra(module: str) -> Any:
    """Import a package of the extra `bench`.

    Raises:
        MissingExtra: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(
            f"this metric needs {module.partition('.')[0]}",
            f"{error.name or 'it'} is not installed",
            "pip install 'colligate[bench]'",
        ) from error
