"""DuQUAD: two reading views, fused signals, scored documents, a judge.

Read `method` first, then `prompts` and `signals`; `sfs` is the retriever.
"""

from colligate.strategies.duquad.method import DuQUAD
from colligate.strategies.duquad.sfs import SFS
from colligate.strategies.duquad.signals import Signal, contrast, fuse_signals

__all__ = ["SFS", "DuQUAD", "Signal", "contrast", "fuse_signals"]
