"""SPD-RAG: one agent per document, findings merged under a token budget.

Read `method` first, then `synthesis` and `prompts`.
"""

from colligate.strategies.spd_rag.method import SPDRAG

__all__ = ["SPDRAG"]
