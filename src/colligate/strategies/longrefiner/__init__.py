"""LongRefiner: structure documents once, refine them to a token budget per question.

Read `method` first, then `structuring`, `skeleton` and `selection`.
"""

from colligate.strategies.longrefiner.method import LongRefiner

__all__ = ["LongRefiner"]
