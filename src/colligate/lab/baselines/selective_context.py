"""Selective Context: what a small language model could have guessed is left out.

Li et al., "Compressing Context to Enhance Inference Efficiency of Large Language Models", 2023:

1. Self-information of a token: I(x_i) = -log p(x_i | x_<i), in its sentence.
2. Merge tokens into units (words, phrases, sentences); a unit has the mean of its tokens.
3. Of the units of all documents leave out the share that is least informative: those below the
   percentile. The question plays no part.
4. Answer once.

The paper's phrases are noun chunks of a parser, which is not used here: `word` is the nearest. The
likelihoods are the scorer's (the paper: GPT-2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.answer import Answer
from colligate.core.parameters import require_min
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.documents import Passage
from colligate.documents.compress import CompressedPassage, compress, keep_above_percentile
from colligate.documents.sentences import split_sentences
from colligate.lab.baselines.lookup import show_shortened
from colligate.lab.baselines.shared import DocumentMethod
from colligate.lab.baselines.token_scores import (
    MARGIN,
    TokenScore,
    cut_pieces,
    group_words,
    score_tokens,
)
from colligate.models import Capability, Role
from colligate.readers.lookup import reserve_for_answer


@dataclass(frozen=True)
class SelectiveContext(DocumentMethod):
    """Documents without the words that a small model would have guessed, then read.

    LongRefiner's row is `units=documents documents=8 target=2048`.

    Attributes:
        level: what is left out: tokens, words or sentences
        reduce: share to leave out
        target: tokens of the scorer to keep of all documents together, instead of `reduce`
    """

    name: ClassVar[str] = "selective-context"
    needs: ClassVar[Needs] = Needs(required=frozenset({Capability.CHAT, Capability.LIKELIHOOD}))
    calls: ClassVar[Calls] = Calls(1)

    level: Literal["token", "word", "sentence"] = "token"  # LongRefiner; the paper has phrases
    reduce: float = 0.35  # the published code
    target: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, reduce=0, target=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Leave out, read."""
        passages = await self.choose(question, run)
        scorer = run.model(Role.SCORER)
        kept = [compress(each, [(0, len(each.text))]) for each in passages]
        with reserve_for_answer(run, lambda: Capability.LIKELIHOOD in scorer.capabilities):
            kept = await self._compress(passages, run)
        shown = show_shortened(kept, [1.0] * len(kept), run)
        return await run.read(question, shown, form=self.form)

    async def _compress(self, passages: Sequence[Passage], run: Run) -> list[CompressedPassage]:
        """Leave out the least informative units of all passages together."""
        rows = [await self._split(passage, run) for passage in passages]
        pairs = [
            ("", passage.text[start:end])
            for passage, row in zip(passages, rows, strict=True)
            for start, end in row
        ]
        scored = iter(await score_tokens(run, pairs) if pairs else ())
        found, total = [], 0
        for passage, row in zip(passages, rows, strict=True):
            units: list[Unit] = []
            for start, end in row:
                tokens = next(scored)
                total += len(tokens)
                text = passage.text[start:end]
                units += [(start + a, start + b, v) for a, b, v in self._merge(text, tokens)]
            found.append((passage, units))
        reduce = self.reduce
        if self.target is not None:
            reduce = max(0.0, 1 - self.target / max(1, total))
        everything = [value for _, units in found for *_, value in units]
        kept = set(keep_above_percentile(everything, 100 * reduce, least=True))
        places = iter(range(len(everything)))
        return [
            compress(passage, [unit[:2] for unit in units if next(places) in kept])
            for passage, units in found
        ]

    def _merge(self, text: str, tokens: Sequence[TokenScore]) -> list[Unit]:
        """Merge the tokens of a sentence into units."""
        if self.level == "sentence":
            groups = [list(range(len(tokens)))] if tokens else []
        elif self.level == "word":
            groups = group_words(text, [(token.start, token.end) for token in tokens])
        else:
            groups = [[place] for place in range(len(tokens))]
        units = []
        for group in groups:
            information = -sum(tokens[place].logprob for place in group) / len(group)
            units.append((tokens[group[0]].start, tokens[group[-1]].end, information))
        return units

    async def _split(self, passage: Passage, run: Run) -> list[tuple[int, int]]:
        """Return the sentences of a passage; one that is too long is cut."""
        model = run.model(Role.SCORER)
        most = _MOST
        if model.context_tokens is not None:
            most = max(1, min(most, model.context_tokens - MARGIN))
        document = await run.document(passage.document_id)
        found: list[tuple[int, int]] = []
        for start, end in split_sentences(passage.text, document.language):
            spans = await model.token_spans(passage.text[start:end])
            found += cut_pieces(start, end, spans, most)
        return found


_MOST = 1024  # tokens of a sentence that are scored together: the published code cuts there

Unit = tuple[int, int, float]
"""A half-open range of a text and its self-information in nats, the mean of its tokens."""
