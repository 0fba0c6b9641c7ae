"""RDR2's metrics of the passages that are handed to a reader, best first."""

from __future__ import annotations

from collections.abc import Sequence

from colligate.evaluation.metrics.asqa import str_em
from colligate.evaluation.question import Reading

DEPTH = 5  # RDR2's k


def passage_scores(
    passages: Sequence[str], readings: Sequence[Reading], k: int = DEPTH
) -> dict[str, float]:
    """P-EM, P-HIT, P-SCORE and P-LEN of the first `k` passages.

    P-EM and P-HIT are STR-EM and HIT of the passages together. P-SCORE is the mean over `k` ranks
    of STR-EM divided by the rank: .4567 is all there is to have for 5. P-LEN is the mean of words
    over `k` slots. A rank without a passage counts 0.
    """
    first = passages[:k]
    together = str_em("\n".join(first), readings)
    by_rank = sum(str_em(text, readings) / rank for rank, text in enumerate(first, 1))
    return {
        "p_em": together,
        "p_hit": float(together == 1),
        "p_score": by_rank / k,
        "p_len": sum(len(text.split()) for text in first) / k,
    }
