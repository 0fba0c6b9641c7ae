"""ELI5's claim recall: which claims of a right answer the given one entails."""

from __future__ import annotations

from collections.abc import Sequence

from colligate.evaluation.metrics.backends import Entails
from colligate.evaluation.metrics.normalising import alce_output


async def claim_recall(text: str, claims: Sequence[str], nli: Entails) -> float:
    """The share of claims that an answer entails, prepared as ALCE does; an empty one has none."""
    output = alce_output(text)
    if not output or not claims:
        return 0.0
    entailed = [await nli.entails(output, claim) for claim in claims]
    return sum(entailed) / len(claims)
