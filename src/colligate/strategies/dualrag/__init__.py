"""DualRAG: reason and query in a loop, keep knowledge in an outline.

Read `method` first, then `knowledge` and `prompts`.
"""

from colligate.strategies.dualrag.knowledge import Knowledge
from colligate.strategies.dualrag.method import DualRAG

__all__ = ["DualRAG", "Knowledge"]
