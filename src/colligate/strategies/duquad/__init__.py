"""DuQUAD: two reading views, fused signals, scored documents, a judge.

Read `method` first, then `prompts` and `signals`.
"""

from colligate.strategies.duquad.method import DuQUAD
from colligate.strategies.duquad.signals import Signal, contrast, fuse_signals

__all__ = ["DuQUAD", "Signal", "contrast", "fuse_signals"]
