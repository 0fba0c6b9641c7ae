"""LLMLingua-2: a trained classifier says which words are worth keeping.

Pan et al., "LLMLingua-2: Data Distillation for Efficient and Faithful Task-Agnostic Prompt
Compression", 2024:

1. Cut the documents into pieces of up to 512 tokens.
2. A token classifier gives each token the probability that it is kept; a word has the mean of its
   tokens.
3. Of each piece keep the words above the percentile that the rate leaves, each word counted once
   per token: int(100 (1 - rate) + 1) in the published code. The question plays no part.
4. Answer once from what is kept.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from colligate.core.answer import Answer
from colligate.core.run import Run
from colligate.documents.compress import compress
from colligate.lab.baselines.encoders import TokenProbability, get_token_classifier
from colligate.lab.baselines.shared import DocumentMethod, require_weights, show_shortened
from colligate.lab.baselines.token_scores import group_words, keep_above_percentile
from colligate.models import Role


@dataclass(frozen=True)
class LLMLingua2(DocumentMethod):
    """Documents shortened word by word by a trained classifier, whatever the question, then read.

    The paper's `classifier` is microsoft/llmlingua-2-xlm-roberta-large-meetingbank (LongRefiner's
    too; 2.2 GB), a smaller one microsoft/llmlingua-2-bert-base-multilingual-cased-meetingbank.
    LongRefiner's row is `units=documents documents=8 target=2048`.

    Attributes:
        classifier: the trained model, a folder or a hub name; must be given
        rate: share of the words to keep
        target: tokens of the classifier to keep of all documents together, instead of `rate`
    """

    name: ClassVar[str] = "llmlingua2"

    classifier: str | None = None
    rate: float = 0.5  # the published code
    target: int | None = None

    async def answer(self, question: str, run: Run) -> Answer:
        """Shorten, read."""
        hint = "set classifier=microsoft/llmlingua-2-xlm-roberta-large-meetingbank, or a folder"
        name = require_weights(self.classifier, self.name, "token classifier", hint)
        classifier, passages = get_token_classifier(name), await self.choose(question, run)
        began = time.perf_counter()
        scored = await classifier.probabilities([passage.text for passage in passages])
        passes, seconds = sum(map(len, scored)), time.perf_counter() - began
        run.meter.scoring(Role.SCORER, classifier.name, passes=passes, seconds=seconds)
        rate = self.rate
        if self.target is not None:
            rate = self.target / max(1, sum(len(piece) for pieces in scored for piece in pieces))
        kept = [
            compress(p, [span for piece in row for span in select_words(p.text, piece, rate)])
            for p, row in zip(passages, scored, strict=True)
        ]
        return await run.read(question, show_shortened(kept, run), form=self.form)


def select_words(
    text: str, tokens: Sequence[TokenProbability], rate: float
) -> list[tuple[int, int]]:
    """Return the words of one piece that are kept, as half-open ranges of the text."""
    if rate >= 1:
        return [(start, end) for start, end, _ in tokens]
    words = group_words(text, [(start, end) for start, end, _ in tokens])
    means = [sum(tokens[i][2] for i in word) / len(word) for word in words]
    # A word counts once per token, because the percentile is one of tokens.
    weighed = [mean for mean, word in zip(means, words, strict=True) for _ in word]
    above = set(keep_above_percentile(weighed, int(100 * (1 - rate) + 1), least=False))
    kept, place = [], 0
    for word in words:
        if place in above:
            kept.append((tokens[word[0]][0], tokens[word[-1]][1]))
        place += len(word)
    return kept
