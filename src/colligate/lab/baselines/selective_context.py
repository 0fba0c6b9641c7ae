"""Selective Context: what a small language model could have guessed is left out.

Li et al., "Compressing Context to Enhance Inference Efficiency of Large Language Models", 2023:

1. Self-information of a token: I(x_i) = -log p(x_i | x_<i), in its sentence.
2. Merge tokens into units (words, phrases, sentences); a unit has the mean of its tokens.
3. Of the units of all documents leave out the share that is least informative: those below the
   percentile. The question plays no part.
4. Answer once.

The likelihoods are the scorer's. The paper's phrases need a parser: `word` is the nearest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.run import Run
from colligate.documents import Passage
from colligate.documents.compress import CompressedPassage, compress
from colligate.documents.sentences import split_sentences
from colligate.lab.baselines.shared import LikelihoodMethod
from colligate.lab.baselines.token_scores import (
    MARGIN,
    TokenScore,
    cut_pieces,
    group_words,
    keep_above_percentile,
    score_tokens,
)
from colligate.models import Role


@dataclass(frozen=True)
class SelectiveContext(LikelihoodMethod):
    """Documents without the words that a small model would have guessed, then read.

    LongRefiner's row is `units=documents documents=8 target=2048`.

    Attributes:
        level: what is left out: tokens, words or sentences
        reduce: share to leave out
        target: tokens of the scorer to keep of all documents together, instead of `reduce`
    """

    name: ClassVar[str] = "selective-context"

    level: Literal["token", "word", "sentence"] = "token"  # LongRefiner; the paper has phrases
    reduce: float = 0.35  # the published code
    target: int | None = None

    async def _shorten(
        self, question: str, passages: Sequence[Passage], run: Run
    ) -> tuple[list[CompressedPassage], Sequence[float]]:
        """Leave out the least informative units of all passages together."""
        places = [(p, at) for p in passages for at in await self._split(p, run)]
        pairs = [("", p.text[start:end]) for p, (start, end) in places]
        scored = await score_tokens(run, pairs) if pairs else []
        units = [
            (p, (start + a, start + b), value)
            for (p, (start, end)), tokens in zip(places, scored, strict=True)
            for a, b, value in self._merge(p.text[start:end], tokens)
        ]
        reduce = self.reduce
        if self.target is not None:
            reduce = max(0.0, 1 - self.target / max(1, sum(map(len, scored))))
        informative = keep_above_percentile([v for *_, v in units], 100 * reduce, least=True)
        kept: dict[Passage, list[tuple[int, int]]] = {each: [] for each in passages}
        for place in informative:
            kept[units[place][0]].append(units[place][1])
        return [compress(passage, spans) for passage, spans in kept.items()], ()

    def _merge(self, text: str, tokens: Sequence[TokenScore]) -> Iterator[tuple[int, int, float]]:
        """Yield the units of a sentence: their ranges, and the mean of their tokens in nats."""
        groups = [[place] for place in range(len(tokens))]
        if self.level == "sentence":
            groups = [list(range(len(tokens)))] if tokens else []
        elif self.level == "word":
            groups = group_words(text, [(token.start, token.end) for token in tokens])
        for group in groups:
            information = -sum(tokens[place].logprob for place in group) / len(group)
            yield tokens[group[0]].start, tokens[group[-1]].end, information

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
