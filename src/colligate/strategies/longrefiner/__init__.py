"""LongRefiner: structure documents once, refine them to a token budget per question.

Read `method` first, then `tree`, `selection` and `structuring`; `events` are what a run reports.
"""

from colligate.strategies.longrefiner.method import LongRefiner, Refiner

__all__ = ["LongRefiner", "Refiner"]
