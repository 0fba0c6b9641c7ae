"""Per document: one question to each document, and what follows from their answers.

Read `method` first, then `prompts`; `figures` compares and adds what was found.
"""

from colligate.strategies.per_document.method import PerDocument

__all__ = ["PerDocument"]
