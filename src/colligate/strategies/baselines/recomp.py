"""RECOMP, extractive: the sentences that a trained encoder finds most useful.

Xu, Shi and Choi, "RECOMP: Improving Retrieval-Augmented LMs with Compression and Selective
Augmentation", 2024:

1. Split the documents into sentences s_i.
2. Encode question x and sentences apart with a trained dual encoder (mean of the token states, at
   most 256 tokens); the score is the dot product <enc(x), enc(s_i)>.
3. Read the best sentences of all documents in their order in the documents.

LongRefiner's row (`level=chunks`): chunks of six sentences of whole documents, the best that a
token budget holds, best first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.answer import Answer
from colligate.core.citing import Evidence
from colligate.core.compress import compress
from colligate.core.events import Scored
from colligate.core.lookup import read_cut
from colligate.core.parameters import require_min
from colligate.core.reader import Form, fit_reader, read, read_best_first
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import Units, choose_units, chunk_documents
from colligate.documents import Passage
from colligate.documents.chunking import SixSentences
from colligate.documents.sentences import split_sentences
from colligate.errors import WeightsUnavailable
from colligate.library.sources import SearchMode
from colligate.models import Role
from colligate.models.hf.encoders import get_dual_encoder


@dataclass(frozen=True)
class Recomp:
    """The sentences that a trained dual encoder scores highest for the question, then read.

    The paper's encoders are fangyuan/nq_extractive_compressor, fangyuan/tqa_extractive_compressor
    and fangyuan/hotpotqa_extractive_compressor, each for one data set (0.4 GB). `budget` are
    tokens of the reader.

    Attributes:
        encoder: the trained model, a folder or a hub name; must be given
        sentences: sentences that are kept, with `level=sentences`
        level: keep single sentences, or chunks of six
        budget: tokens of chunks that are read, with `level=chunks`
        documents: documents (or passages, by `units`) that are read, best first
        pool: passages that a search gives to the reranker, if there is one
        on_nothing: what is read if the sentences kept do not hold the answer: the passages whole,
            or nothing
    """

    name: ClassVar[str] = "recomp"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(1)

    encoder: str | None = None
    sentences: int = 5  # FlashRAG
    level: Literal["sentences", "chunks"] = "sentences"
    budget: int = 2048  # LongRefiner
    documents: int = 20  # DuQUAD, Natural Questions
    units: Units = "auto"
    pool: int = 50
    mode: SearchMode = SearchMode.HYBRID
    on_nothing: Literal["passages", "nothing"] = "passages"  # the paper: nothing
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, sentences=1, budget=1, documents=1, pool=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Score, choose, read.

        Raises:
            WeightsUnavailable: no encoder is named, or it cannot be loaded.
            MissingExtra: torch or transformers is not installed.
        """
        if self.encoder is None:
            raise WeightsUnavailable(
                "recomp needs a trained dual encoder",
                "none is named",
                "set encoder=fangyuan/nq_extractive_compressor (or tqa, hotpotqa), or a folder",
            )
        if self.level == "chunks":
            chunks = await chunk_documents(
                question, run, SixSentences(), documents=self.documents, mode=self.mode
            )
            return await read_best_first(
                question,
                chunks,
                await self._score(question, chunks, run),
                run,
                strategy=self.name,
                by=self.encoder,
                form=self.form,
                budget=self.budget,
            )
        _, passages = await choose_units(
            question, run, self.units, self.documents, pool=self.pool, mode=self.mode
        )
        return await self._extract(question, passages, run)

    async def _extract(self, question: str, passages: Sequence[Passage], run: Run) -> Answer:
        """Read the best sentences of the passages in their order."""
        every = [sentence for passage in passages for sentence in await _split(passage, run)]
        found = list(dict.fromkeys(every))  # passages may overlap
        scores = await self._score(question, found, run)
        ranked = sorted(range(len(found)), key=lambda place: -scores[place])[: self.sentences]
        chosen = {found[place].span: scores[place] for place in ranked}
        shortened = []
        left = set(chosen)
        for passage in passages:
            inside = [span for span in left if passage.span.contains(span)]
            left.difference_update(inside)
            start = passage.span.start
            places = [(span.start - start, span.end - start) for span in inside]
            shortened.append(compress(passage, places))
        kept = [each for each in shortened if each.kept]
        shown = await fit_reader(question, kept, run, self.form)
        spans = [span for each in kept[: len(shown)] for span in chosen if each.span.contains(span)]
        evidence = [
            Evidence(span, chosen[span], "one of the most useful sentences by the encoder")
            for span in sorted(dict.fromkeys(spans), key=lambda span: -chosen[span])
        ]
        answer = await read(
            question, shown, run, strategy=self.name, evidence=evidence, form=self.form
        )
        whole = passages if self.on_nothing == "passages" else ()
        return await read_cut(answer, whole, shown, run, self.form)

    async def _score(self, question: str, passages: Sequence[Passage], run: Run) -> list[float]:
        """Return <enc(x), enc(s_i)> of each passage."""
        assert self.encoder is not None
        encoder = get_dual_encoder(self.encoder)
        began = time.perf_counter()
        scores = await encoder.scores(question, [passage.text for passage in passages])
        seconds = time.perf_counter() - began
        run.meter.scoring(Role.SCORER, encoder.name, passes=len(passages), seconds=seconds)
        spans = tuple(passage.span for passage in passages)
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
