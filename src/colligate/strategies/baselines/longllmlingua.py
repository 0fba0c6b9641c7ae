"""LongLLMLingua: documents ranked, then cut token by token, by what the question explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.answer import Answer
from colligate.core.compress import CompressedPassage, compress, keep_best_share
from colligate.core.events import Pruned
from colligate.core.parameters import require_min
from colligate.core.prompts import escape
from colligate.core.reader import Form, read_shortened
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.token_scores import MARGIN, TokenScore, cut_pieces, score_tokens
from colligate.core.units import Units, choose_units
from colligate.documents import Passage
from colligate.library.sources import SearchMode
from colligate.models import Capability, Role

_RESTRICTIVE = "We can get the answer to this question in the given documents."  # the paper's


@dataclass(frozen=True)
class LongLLMLingua:
    """Documents ranked and cut token by token by a small model's likelihoods, then read.

    Jiang et al. 2024. Coarse: documents by how likely the question is after each of them, with a
    sentence behind it that the answer is there; the best are kept until they exceed the target by
    `extra` tokens. Fine: in blocks of `block` tokens, those are kept that the question makes
    likelier most, the log-probability with it less that without it, after what was kept before.
    The better a document ranks the more of it stays: the share falls by 2 x `dynamic` from the
    first to the last.

    The likelihoods are the scorer's. `rate` is the share of all tokens to keep; `target`, in
    tokens of the scorer, takes its place (LongRefiner: 2048). The published code ends a block
    where 200 tokens are full, here one never reaches into the next document. Its last step, which
    restores the answer's words from the documents, is what citing does.
    """

    name: ClassVar[str] = "longllmlingua"
    needs: ClassVar[Needs] = Needs(required=frozenset({Capability.CHAT, Capability.LIKELIHOOD}))
    calls: ClassVar[Calls] = Calls(1)

    rate: float = 0.55  # FlashRAG
    target: int | None = None
    extra: int = 100  # FlashRAG: context_budget "+100"
    dynamic: float = 0.3
    block: int = 200
    order: Literal["best", "given"] = "best"  # reorder_context: sort, original
    documents: int = 20  # DuQUAD, Natural Questions
    units: Units = "auto"
    pool: int = 50
    mode: SearchMode = SearchMode.HYBRID
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, rate=0, target=1, extra=0, dynamic=0, block=1, documents=1, pool=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Rank, cut, read."""
        _, passages = await choose_units(
            question, run, self.units, self.documents, pool=self.pool, mode=self.mode
        )
        passages = [passage for passage in passages if passage.text.strip()]
        scores = await self._ranks(question, passages, run)
        sizes = [await run.model(Role.SCORER).count_tokens(p.text) for p in passages]
        target = self.target if self.target is not None else int(self.rate * sum(sizes))
        ranked = self._coarse(scores, sizes, target)
        if left_out := set(range(len(passages))) - set(ranked):
            spans = tuple(passages[place].span for place in sorted(left_out))
            run.emit(Pruned(spans, f"the target of {target} tokens was reached"))
        shares = self._shares(ranked, sizes, target)
        order = ranked if self.order == "best" else sorted(ranked)
        kept = await self._fine(
            question, [(passages[place], shares[place]) for place in order], run
        )
        ranks = [scores[place] for place in order]
        return await read_shortened(question, kept, ranks, run, strategy=self.name, form=self.form)

    async def _ranks(self, question: str, passages: Sequence[Passage], run: Run) -> list[float]:
        """The mean log-probability of the question after each document; the higher the better."""
        asked = escape(f" {question.strip()} {_RESTRICTIVE}")
        texts = [escape(f"{passage.title}\n{passage.text.strip()}") for passage in passages]
        taken = await run.model(Role.SCORER).count_tokens(asked)
        heads = [await _within_window(text, run, taken) for text in texts]
        if heads != texts:
            run.warn("a document is longer than the scorer's window: its beginning ranks it")
        found = await run.likelihoods([(head, asked) for head in heads])
        return [sum(each) / max(1, len(each)) for each in found]

    def _coarse(self, scores: Sequence[float], sizes: Sequence[int], target: int) -> list[int]:
        """The best documents, up to and with the one that exceeds the target and `extra`."""
        left, kept = target + self.extra, []
        for place in sorted(range(len(scores)), key=lambda place: -scores[place]):
            kept.append(place)
            left -= sizes[place]
            if left < 0:
                break
        return kept

    def _shares(self, ranked: Sequence[int], sizes: Sequence[int], target: int) -> dict[int, float]:
        """How much of each document to keep: more of a better one."""
        base = min(1.0, target / max(1, sum(sizes[place] for place in ranked)))
        last = len(ranked) - 1
        shares = {}
        for rank, place in enumerate(ranked):
            change = self.dynamic * (1 - 2 * rank / last) if last else 0.0
            shares[place] = min(1.0, max(0.0, base + change))
        return shares

    async def _fine(
        self, question: str, documents: Sequence[tuple[Passage, float]], run: Run
    ) -> list[CompressedPassage]:
        """Each document with its best tokens, in the order given."""
        asked = f"{question.strip()}\n\n"
        before = ""
        found: list[CompressedPassage] = []
        for passage, share in documents:
            found.append(await self._cut(asked, before, passage, share, run))
            before += f"{found[-1].text}\n\n" if found[-1].kept else ""
        return found

    async def _cut(
        self, asked: str, before: str, passage: Passage, share: float, run: Run
    ) -> CompressedPassage:
        """A document with only its best tokens, given what was kept of those before it."""
        if share <= 0 or share >= 1:
            return compress(passage, [(0, len(passage.text))] if share > 0 else [])
        model = run.model(Role.SCORER)
        taken = await model.count_tokens(asked) + self.block
        kept: list[tuple[int, int]] = []
        tokens = await model.token_spans(passage.text)
        for start, end in cut_pieces(0, len(passage.text), tokens, self.block):
            known = before + compress(passage, kept).text
            context = await _within_window(known, run, taken, end=True)
            text = passage.text[start:end]
            pairs = [(f"{asked}{context}", text), (context, text)]
            told, untold = await score_tokens(run, pairs)
            kept += [(start + a, start + b) for a, b in chosen(told, untold, share)]
        return compress(passage, kept)


def chosen(
    told: Sequence[TokenScore], untold: Sequence[TokenScore], share: float
) -> list[tuple[int, int]]:
    """The tokens that the question makes likelier most, so large a share of them."""
    gains = [a.logprob - b.logprob for a, b in zip(told, untold, strict=True)]
    return [(told[place].start, told[place].end) for place in keep_best_share(gains, share)]


async def _within_window(text: str, run: Run, taken: int, *, end: bool = False) -> str:
    """The beginning of a text, or its end, that the scorer's window holds beside `taken` tokens."""
    model = run.model(Role.SCORER)
    if model.context_tokens is None:
        return text
    room = max(1, model.context_tokens - taken - MARGIN)
    spans = await model.token_spans(text)
    if len(spans) <= room:
        return text
    return text[spans[-room][0] :] if end else text[: spans[room - 1][1]]
