"""Retrieve and read: the best passages of one search, one answer.

DualRAG's NativeRAG: retrieve 50 passages, rerank them, answer once from the best 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from colligate.core.answer import Answer, Form
from colligate.core.parameters import require_min
from colligate.core.run import Run, show_ranked
from colligate.core.strategy import Needs
from colligate.library.sources import SearchMode


@dataclass(frozen=True)
class RetrieveRead:
    """One search, the best passages, one answer.

    Without a reranker the first `k` of the search are read. Passages that do not fit the model's
    window are left out, the last first, with a warning.

    Attributes:
        pool: passages that a search gives to the reranker, if there is one
        k: passages that are read
    """

    name: ClassVar[str] = "retrieve-read"
    needs: ClassVar[Needs] = Needs(reranker="minilm")
    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense"}

    pool: int = 50  # DualRAG, NativeRAG
    k: int = 10  # DualRAG, NativeRAG
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, pool=1, k=1)

    async def answer(self, question: str, run: Run) -> Answer:
        hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
        return await run.read(question, show_ranked(hits), form=self.form)
