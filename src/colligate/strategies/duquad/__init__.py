"""DuQUAD: two reading views, fused signals, scored documents, a judge.

Read `method` first, then `prompts` and `signals`; `events` are what a run reports.
"""

from colligate.strategies.duquad.method import DuQUAD

__all__ = ["DuQUAD"]
