"""A metric over the questions of a strategy: what counts for a row that does not have it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from colligate.evaluation.rows import Row

_OF_A_STAGE = re.compile(r"gold_(?P<how>any|all|share)_\w+")
_OF_A_ROLE = re.compile(r"(calls|input_tokens|output_tokens)_\w+")
_OF_A_SEARCH = re.compile(r"gold_(any|all|share)_retrieved|[a-z]+_at_\d+")


def counted(rows: Sequence[Row], metric: str) -> dict[str, float]:
    """A metric by question, of all rows of a strategy on a data set.

    Which stages and roles a strategy has is known from its rows alone. So where some have one, a
    row that broke before it, or ended without any evidence, has 0 gold in that stage, and one
    that did not call that role has 0 calls and tokens of it. What broke counts as a search
    without results only where the others searched.
    """
    found = {
        row.question: row.metrics[metric]
        for row in rows
        if metric in row.metrics and math.isfinite(row.metrics[metric])
    }
    if not found:
        return {}
    if _OF_A_SEARCH.fullmatch(metric):
        came_through = [row for row in rows if not row.outcome.error]
        if came_through and not any(row.question in found for row in came_through):
            return {}
    elif of_stage := _OF_A_STAGE.fullmatch(metric):
        evidence = f"gold_{of_stage['how']}_evidence"
        for row in rows:
            if evidence in row.metrics and (row.outcome.error or not row.outcome.evidence):
                found.setdefault(row.question, 0.0)
    elif _OF_A_ROLE.fullmatch(metric):
        for row in rows:
            if "calls" in row.metrics:
                found.setdefault(row.question, 0.0)
    return found
