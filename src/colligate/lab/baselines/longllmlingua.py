"""LongLLMLingua: documents ranked, then cut token by token, by what the question explains.

Jiang et al., "LongLLMLingua: Accelerating and Enhancing LLMs in Long Context Scenarios via Prompt
Compression", 2024:

1. Coarse: rank each document x_k by r_k, the mean log-probability of the question and a
   restrictive sentence after the document. Keep the best until they exceed the target.
2. Adaptive rates: the share kept of a document falls from the best to the last by 2 delta tau.
3. Fine: in blocks of 200 tokens keep the tokens with the highest contrastive perplexity, s_i =
   log p(x_i | question, x_<i) - log p(x_i | x_<i), where x_<i is what was kept before.
4. Put the best document first and answer once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from colligate.core.events import Pruned
from colligate.core.prompts import escape
from colligate.core.run import Run
from colligate.documents import Passage
from colligate.documents.compress import CompressedPassage, compress
from colligate.lab.baselines.shared import LikelihoodMethod
from colligate.lab.baselines.token_scores import MARGIN, cut_pieces, score_tokens
from colligate.models import Role


@dataclass(frozen=True)
class LongLLMLingua(LikelihoodMethod):
    """Documents ranked and cut token by token by a small model's likelihoods, then read.

    The likelihoods are the scorer's. The best documents are kept until they exceed the target by
    `extra` tokens. The share kept of a document falls by 2 x `dynamic` from the first to the last.
    LongRefiner's row is `units=documents documents=8 target=2048`.

    Attributes:
        rate: share of all tokens to keep
        target: tokens of the scorer to keep of all documents together, instead of `rate`
        extra: tokens above the target up to which documents are added, best first
        dynamic: how much more is kept of the best document than on average, as a share; as much
            less of the last
        block: tokens that are cut at a time
    """

    name: ClassVar[str] = "longllmlingua"
    LEAST: ClassVar[Mapping[str, float]] = {"extra": 0}

    rate: float = 0.55  # FlashRAG
    target: int | None = None
    extra: int = 100  # FlashRAG, context_budget
    dynamic: float = 0.3  # delta tau
    block: int = 200

    async def _shorten(
        self, question: str, passages: Sequence[Passage], run: Run
    ) -> tuple[list[CompressedPassage], Sequence[float]]:
        """Return the best passages, cut, in the order in which they are read, and their scores."""
        scores = await self._rank(question, passages, run)
        sizes = [await run.model(Role.SCORER).count_tokens(p.text) for p in passages]
        target = self.target if self.target is not None else int(self.rate * sum(sizes))
        ranked = self._select(scores, sizes, target)
        if left_out := set(range(len(passages))) - set(ranked):
            spans = tuple(passages[place].span for place in sorted(left_out))
            run.emit(Pruned(spans, f"the target of {target} tokens was reached"))
        shares = self._share(ranked, sizes, target)
        asked, before = f"{escape(question.strip())}\n\n", ""
        kept: list[CompressedPassage] = []
        for place in ranked:
            kept.append(await self._cut(asked, before, passages[place], shares[place], run))
            before += f"{kept[-1].text}\n\n" if kept[-1].kept else ""
        return kept, [scores[place] for place in ranked]

    async def _rank(self, question: str, passages: Sequence[Passage], run: Run) -> list[float]:
        """Return r_k of each document; the higher the better."""
        asked = escape(f" {question.strip()} {_RESTRICTIVE}")
        texts = [escape(f"{passage.title}\n{passage.text.strip()}") for passage in passages]
        taken = await run.model(Role.SCORER).count_tokens(asked)
        heads = [await _fit_scorer(text, run, taken) for text in texts]
        if heads != texts:
            run.warn("a document is longer than the scorer's window: its beginning ranks it")
        found = await run.likelihoods([(head, asked) for head in heads])
        return [sum(each) / max(1, len(each)) for each in found]

    def _select(self, scores: Sequence[float], sizes: Sequence[int], target: int) -> list[int]:
        """Return the best documents, up to and with the one that exceeds target and `extra`."""
        ranked = sorted(range(len(scores)), key=lambda place: -scores[place])
        before = accumulate((sizes[place] for place in ranked), initial=0)
        return [
            place
            for place, size in zip(ranked, before, strict=False)
            if size <= target + self.extra
        ]

    def _share(self, ranked: Sequence[int], sizes: Sequence[int], target: int) -> dict[int, float]:
        """Return the share of each document to keep: more of a better one."""
        base = min(1.0, target / max(1, sum(sizes[place] for place in ranked)))
        last, shares = len(ranked) - 1, {}
        for rank, place in enumerate(ranked):
            change = self.dynamic * (1 - 2 * rank / last) if last else 0.0
            shares[place] = min(1.0, max(0.0, base + change))
        return shares

    async def _cut(
        self, asked: str, before: str, passage: Passage, share: float, run: Run
    ) -> CompressedPassage:
        """Cut a document to its best tokens, after what was kept of those before it."""
        if share <= 0 or share >= 1:
            return compress(passage, [(0, len(passage.text))] if share > 0 else [])
        model = run.model(Role.SCORER)
        taken = await model.count_tokens(asked) + self.block
        kept: list[tuple[int, int]] = []
        tokens = await model.token_spans(passage.text)
        for start, end in cut_pieces(0, len(passage.text), tokens, self.block):
            known = escape(before + compress(passage, kept).text)
            context = await _fit_scorer(known, run, taken, end=True)
            text = escape(passage.text[start:end])
            pairs = [(f"{asked}{context}", text), (context, text)]
            with_question, without = await score_tokens(run, pairs)
            both = zip(with_question, without, strict=True)
            gains = [told.logprob - untold.logprob for told, untold in both]  # s_i
            chosen = [with_question[place] for place in keep_best_share(gains, share)]
            kept += [(start + token.start, start + token.end) for token in chosen]
        return compress(passage, kept)


_RESTRICTIVE = "We can get the answer to this question in the given documents."  # the paper's


def keep_best_share(scores: Sequence[float], share: float) -> list[int]:
    """Return the places of the best `share` (0 to 1) of the scores; of equal ones the earlier."""
    count = round(len(scores) * min(1.0, max(0.0, share)))
    ranked = sorted(range(len(scores)), key=lambda place: -scores[place])
    return sorted(ranked[:count])


async def _fit_scorer(text: str, run: Run, taken: int, *, end: bool = False) -> str:
    """Return the start of a text, or its end, that the scorer's window holds with `taken` more."""
    model = run.model(Role.SCORER)
    if model.context_tokens is None:
        return text
    room = max(1, model.context_tokens - taken - MARGIN)
    spans = await model.token_spans(text)
    if len(spans) <= room:
        return text
    return text[spans[-room][0] :] if end else text[: spans[room - 1][1]]
