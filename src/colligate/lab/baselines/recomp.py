"""RECOMP, extractive: the sentences that a trained encoder finds most useful.

Xu, Shi and Choi, "RECOMP: Improving Retrieval-Augmented LMs with Compression and Selective
Augmentation", 2024:

1. Split the documents into sentences s_i.
2. Encode question x and sentences apart with a trained dual encoder (mean of the token states, at
   most 256 tokens); the score is the dot product <enc(x), enc(s_i)>.
3. Read the best sentences in their order in the documents; in LongRefiner's row (`level=chunks
   documents=8`) the best chunks of six sentences that a token budget holds, best first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.answer import Answer
from colligate.core.events import Scored
from colligate.core.run import Run, Shown
from colligate.documents import Passage
from colligate.documents.chunking import SixSentences
from colligate.documents.sentences import split_sentences
from colligate.lab.baselines.encoders import get_dual_encoder
from colligate.lab.baselines.shared import DocumentMethod, meter_passes, require_weights, show_best


@dataclass(frozen=True)
class Recomp(DocumentMethod):
    """The sentences that a trained dual encoder scores highest for the question, then read.

    The paper's encoders are fangyuan/nq_extractive_compressor, fangyuan/tqa_extractive_compressor
    and fangyuan/hotpotqa_extractive_compressor, each for one data set (0.4 GB). `budget` are
    tokens of the reader.

    Attributes:
        encoder: the trained model, a folder or a hub name; must be given
        sentences: sentences that are kept, with `level=sentences`
        level: keep single sentences, or chunks of six
        budget: tokens of chunks that are read, with `level=chunks`
    """

    name: ClassVar[str] = "recomp"

    encoder: str | None = None
    sentences: int = 5  # FlashRAG
    level: Literal["sentences", "chunks"] = "sentences"
    budget: int = 2048  # LongRefiner

    async def answer(self, question: str, run: Run) -> Answer:
        """Score, choose, read."""
        hint = "set encoder=fangyuan/nq_extractive_compressor (or tqa, hotpotqa), or a folder"
        encoder = require_weights(self.encoder, self.name, "dual encoder", hint)
        if self.level == "chunks":
            chunks = await self.cut_whole(question, run, SixSentences(), self.documents)
            scores = await _score(question, chunks, encoder, run)
            shown = await show_best(chunks, scores, run, by=encoder, budget=self.budget)
            return await run.read(question, shown, form=self.form)
        passages = await self.choose(question, run)
        every = [sentence for passage in passages for sentence in await _split(passage, run)]
        found = list(dict.fromkeys(every))  # passages may overlap
        scores = await _score(question, found, encoder, run)
        ranked = sorted(range(len(found)), key=lambda place: -scores[place])[: self.sentences]
        why = "one of the most useful sentences by the encoder"
        shown = [Shown(found[place], scores[place], why) for place in sorted(ranked)]
        return await run.read(question, shown, form=self.form)


async def _score(question: str, passages: Sequence[Passage], name: str, run: Run) -> list[float]:
    """Return <enc(x), enc(s_i)> of each passage."""
    encoder, began = get_dual_encoder(name), time.perf_counter()
    with meter_passes(encoder.name, run, len(passages)):
        scores = await encoder.scores(question, [passage.text for passage in passages])
    spans, seconds = tuple(passage.span for passage in passages), time.perf_counter() - began
    run.emit(Scored(encoder.name, spans, tuple(scores), seconds))
    return scores


_SHORTEST = 5  # characters: sentences of no more are skipped, as in FlashRAG


async def _split(passage: Passage, run: Run) -> list[Passage]:
    document = await run.document(passage.document_id)
    at = passage.span.start
    return [
        document.passage(document.span(at + start, at + end))
        for start, end in split_sentences(passage.text, document.language)
        if end - start > _SHORTEST
    ]
