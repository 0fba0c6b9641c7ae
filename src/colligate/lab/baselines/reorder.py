"""Reordering: the same documents, best first, then one answer.

The "reordering" rows of DuQUAD and the retrieval-based rows of LongRefiner:

1. Score the documents for the question: by BM25, or by the cosine of sentence embeddings.
2. Sort them, best first; DuQUAD leaves none out, LongRefiner keeps what 2,048 tokens hold.
3. Answer once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.answer import Answer
from colligate.core.relevance import score_relevance
from colligate.core.run import Run
from colligate.core.units import choose_units
from colligate.documents import Passage
from colligate.documents.chunking import SixSentences
from colligate.lab.baselines.shared import SearchMethod, show_best


@dataclass(frozen=True)
class _Reorder(SearchMethod):
    """A method that sorts documents by a score.

    Attributes:
        documents: documents (or passages, by `units`) that are read, best first
        units: what is sorted: whole documents, passages of a search, or chunks of six sentences;
            auto: documents if they are few and short, else passages
        budget: most tokens that are read, best first; none: all
    """

    documents: int = 20  # N of DuQUAD's Natural Questions
    units: Literal["auto", "documents", "passages", "chunks"] = "auto"
    budget: int | None = None

    async def _choose(self, question: str, run: Run) -> list[Passage]:
        """Return what is sorted, without blank texts."""
        most = self.documents
        if self.units == "chunks":
            return await self.cut_whole(question, run, SixSentences(), most)
        # No larger pool: a reranker must not choose for a method that is compared with it.
        _, found = await choose_units(question, run, self.units, most, pool=most, mode=self.mode)
        return [passage for passage in found if passage.text.strip()]


@dataclass(frozen=True)
class ReorderBM25(_Reorder):
    """All documents, the best by BM25 first, in one prompt.

    BM25 has the statistics of these documents only; words are split as the library splits them.

    With `units=chunks budget=2048 documents=8` it is LongRefiner's BM25 row: chunks of six
    sentences, the best that 2,048 tokens hold.
    """

    name: ClassVar[str] = "reorder-bm25"

    async def answer(self, question: str, run: Run) -> Answer:
        """Score, order, read."""
        passages = await self._choose(question, run)
        scores = await score_relevance(question, passages, run, "bm25")
        shown = await show_best(passages, scores, run, by="BM25", budget=self.budget)
        return await run.read(question, shown, form=self.form)


@dataclass(frozen=True)
class ReorderDense(_Reorder):
    """All documents, the most similar to the question first, in one prompt.

    DuQUAD's SBERT is `--embedder st:sentence-transformers/all-mpnet-base-v2`, its OpenAI row
    `--embedder openai:text-embedding-3-large`. With `units=chunks budget=2048 documents=8` it is
    LongRefiner's SBERT row, and with `by=reranker` its row of BGE's reranker.

    Attributes:
        by: what scores them: the embedder or the reranker
    """

    name: ClassVar[str] = "reorder-dense"

    by: Literal["embedder", "reranker"] = "embedder"

    async def answer(self, question: str, run: Run) -> Answer:
        """Score, order, read."""
        passages = await self._choose(question, run)
        scores = await score_relevance(question, passages, run, self.by)
        shown = await show_best(passages, scores, run, by=f"the {self.by}", budget=self.budget)
        return await run.read(question, shown, form=self.form)
