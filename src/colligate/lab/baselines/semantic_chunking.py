"""Semantic chunking: documents cut by their structure, the best chunks read.

LongRefiner's row "Jina" asks a vendor's segmenter for chunks of up to 500; its rules are those of
structure, so here:

1. Cut documents at headings, blank lines and the ends of sentences.
2. Rank the chunks for the question and answer once from the best that a token budget holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from colligate.core.answer import Answer
from colligate.core.run import Run
from colligate.documents.chunking import Structural
from colligate.lab.baselines.shared import ChunkMethod


@dataclass(frozen=True)
class SemanticChunking(ChunkMethod):
    """Documents cut by headings and paragraphs; the best chunks are read.

    Attributes:
        tokens: most tokens of a chunk
    """

    name: ClassVar[str] = "semantic-chunking"

    tokens: int = 500  # LongRefiner; the vendor's page says that these are characters

    async def answer(self, question: str, run: Run) -> Answer:
        """Cut, choose, read."""
        chunks = await self.cut_whole(question, run, Structural(self.tokens), self.documents)
        return await self.read_best(question, chunks, run)
