"""What measures the replies to the samples of each task."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from colligate.training import scores_dualrag, scores_longrefiner, scores_router
from colligate.training.samples import Sample

Values = Mapping[str, float]

LOWER_IS_BETTER = frozenset({"xpl_avg", "col_rate"})
"""The router's breaches of the rules, and replies of which nothing can be made."""


@dataclass(frozen=True)
class Scoring:
    """`score` measures one reply beside its sample's own, `summed` many replies of one task.

    A metric that does not apply to a sample is not among its values; a name that begins with "_"
    is for `summed` alone.
    """

    score: Callable[[Sample, str], Values]
    summed: Callable[[Sequence[Values]], Values]


_ROUTER = Scoring(scores_router.score, scores_router.summed)
_LONGREFINER = Scoring(scores_longrefiner.score, scores_longrefiner.summed)
_DUALRAG = Scoring(scores_dualrag.score, scores_dualrag.summed)

TASKS: Mapping[str, Scoring] = {
    "router": _ROUTER,
    "scope": _LONGREFINER,
    "structuring": _LONGREFINER,
    "selection": _LONGREFINER,
    "reasoner": _DUALRAG,
    "identifier": _DUALRAG,
    "summarizer": _DUALRAG,
}
"""The steps that are trained, by the name a sample gives them."""
