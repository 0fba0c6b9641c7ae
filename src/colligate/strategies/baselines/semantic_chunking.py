"""Semantic chunking: documents cut by structure or by meaning, the best chunks read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from colligate.core.answer import Answer
from colligate.core.parameters import require_min
from colligate.core.reader import Form, read_best_first
from colligate.core.relevance import Relevance, score_relevance
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.token_scores import cut_runs
from colligate.core.units import chunk_documents, read_whole_documents
from colligate.documents import Document, Passage
from colligate.documents.chunking import Structural
from colligate.documents.sentences import split_sentences
from colligate.documents.tokens import estimate_tokens
from colligate.library.sources import SearchMode


@dataclass(frozen=True)
class SemanticChunking:
    """Documents cut by their structure, or where their subject changes; the best chunks are read.

    LongRefiner's row "Jina" asks a segmenter that is served at a vendor's, with chunks of up to
    500; its rules are those of structure, so `how=structure` cuts at headings, blank lines and
    the ends of sentences, up to `tokens` tokens. `how=meaning` cuts between neighbouring sentences
    whose embeddings, each with the sentence before and after it, are farther apart than
    `percentile` percent of all in the document (Kamradt 2024).

    The best chunks by the run's reranker, embedder or BM25 are read, best first, as many as
    `budget` tokens of the reader hold.
    """

    name: ClassVar[str] = "semantic-chunking"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(1)

    how: Literal["structure", "meaning"] = "structure"
    tokens: int = 500  # LongRefiner, which means characters by what the vendor says
    percentile: float = 95.0
    budget: int = 2048  # LongRefiner
    by: Relevance = "auto"  # LongRefiner: a reranker
    documents: int = 8  # LongRefiner
    mode: SearchMode = SearchMode.HYBRID
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, tokens=1, percentile=0, budget=1, documents=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Cut, choose, read."""
        chunks = await self._chunks(question, run)
        scores = await score_relevance(question, chunks, run, self.by)
        return await read_best_first(
            question,
            chunks,
            scores,
            run,
            strategy=self.name,
            by="relevance",
            form=self.form,
            budget=self.budget,
        )

    async def _chunks(self, question: str, run: Run) -> list[Passage]:
        if self.how == "structure":
            chunker = Structural(self.tokens)
            return await chunk_documents(
                question, run, chunker, documents=self.documents, mode=self.mode
            )
        documents = await read_whole_documents(question, run, self.documents, self.mode)
        return [chunk for each in documents for chunk in await self._by_meaning(each, run)]

    async def _by_meaning(self, document: Document, run: Run) -> list[Passage]:
        found = await asyncio.to_thread(split_sentences, document.text, document.language)
        if not found:
            return []
        cuts = await self._cuts(document.text, found, run)
        return [
            document.passage(document.span(found[first][0], found[stop - 1][1]))
            for run_ in cut_runs(len(found), cuts)
            for first, stop in self._no_longer(document.text, found, run_)
        ]

    async def _cuts(self, text: str, found: Sequence[tuple[int, int]], run: Run) -> list[int]:
        """The sentences after which the subject changes."""
        around = [
            text[found[max(0, i - 1)][0] : found[min(i + 1, len(found) - 1)][1]]
            for i in range(len(found))
        ]
        vectors = await run.embed(around)
        distances = 1 - (vectors[:-1] * vectors[1:]).sum(axis=1)
        if not distances.size:
            return []
        bar = float(np.percentile(distances, min(100.0, self.percentile)))
        return [i for i, distance in enumerate(distances.tolist()) if distance > bar]

    def _no_longer(
        self, text: str, found: Sequence[tuple[int, int]], whole: tuple[int, int]
    ) -> list[tuple[int, int]]:
        """A run of sentences, cut where it has more than `tokens` tokens."""
        parts, first, held = [], whole[0], 0
        for place in range(*whole):
            count = estimate_tokens(text[slice(*found[place])])
            if place > first and held + count > self.tokens:
                parts.append((first, place))
                first, held = place, 0
            held += count
        return [*parts, (first, whole[1])]
