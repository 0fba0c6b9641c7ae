"""Semantic chunking: documents cut by structure or by meaning, the best chunks read.

LongRefiner's row "Jina" (`how=structure`) asks a vendor's segmenter for chunks of up to 500; its
rules are those of structure, so here documents are cut at headings, blank lines and the ends of
sentences. `how=meaning` (Kamradt, "5 Levels of Text Splitting", 2024):

1. Embed each sentence together with the one before and the one after it.
2. Cut where the cosine distance of neighbours exceeds a percentile of all in the document.

Then rank the chunks for the question and answer once from the best that a token budget holds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from colligate.core.answer import Answer
from colligate.core.fit import split_by_tokens
from colligate.core.run import Run
from colligate.documents import Document, Passage
from colligate.documents.chunking import Structural
from colligate.documents.sentences import split_sentences
from colligate.documents.tokens import estimate_tokens
from colligate.lab.baselines.shared import ChunkMethod
from colligate.lab.baselines.token_scores import cut_runs


@dataclass(frozen=True)
class SemanticChunking(ChunkMethod):
    """Documents cut by their structure, or where their subject changes; the best chunks are read.

    Attributes:
        how: cut by headings and paragraphs (structure), or where the subject changes (meaning)
        tokens: most tokens of a chunk
        percentile: cut at distances between sentences above this percentile, with `how=meaning`
    """

    name: ClassVar[str] = "semantic-chunking"

    how: Literal["structure", "meaning"] = "structure"
    tokens: int = 500  # LongRefiner; the vendor's page says that these are characters
    percentile: float = 95.0

    async def answer(self, question: str, run: Run) -> Answer:
        """Cut, choose, read."""
        if self.how == "structure":
            chunker = Structural(self.tokens)
            chunks = await self.cut_whole(question, run, chunker, self.documents)
        else:
            documents = await self.read_whole(question, run, self.documents)
            chunks = [part for each in documents for part in await self._cut_by_meaning(each, run)]
        return await self.read_best(question, chunks, run)

    async def _cut_by_meaning(self, document: Document, run: Run) -> list[Passage]:
        found = await asyncio.to_thread(split_sentences, document.text, document.language)
        if not found:
            return []
        cuts = await self._find_cuts(document.text, found, run)
        return [
            document.passage(document.span(found[first][0], found[stop - 1][1]))
            for whole in cut_runs(len(found), cuts)
            for first, stop in self._limit(document.text, found, whole)
        ]

    async def _find_cuts(self, text: str, found: Sequence[tuple[int, int]], run: Run) -> list[int]:
        """Return the sentences after which the subject changes."""
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

    def _limit(
        self, text: str, found: Sequence[tuple[int, int]], whole: tuple[int, int]
    ) -> list[tuple[int, int]]:
        """Cut a run of sentences where it has more than `tokens` tokens."""
        counts = [estimate_tokens(text[slice(*found[place])]) for place in range(*whole)]
        parts = split_by_tokens(counts, self.tokens)
        return [(whole[0] + part.start, whole[0] + part.stop) for part in parts]
