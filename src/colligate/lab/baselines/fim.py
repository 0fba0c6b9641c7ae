"""Found in the Middle: documents by attention less its bias for places, best at both ends.

Hsieh et al., "Found in the Middle: Calibrating Positional Attention Bias Improves Long Context
Utilization", 2024:

1. Attn(x, k): the attention that the prompt's last token pays to document x at place k.
2. Attn(dummy, k): the same for a document without content: what place k gets anyway.
3. Rank the documents by Attn(x, k) - Attn(dummy, k).
4. Place them in a U shape (DuQUAD's text for its FiM row): ranks 1, 3, 5 from the front, 2, 4, 6
   from the back. Answer once, without the paper's change of the attention inside the model.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

from colligate.core import prompts
from colligate.core.answer import Answer
from colligate.core.events import Scored
from colligate.core.fit import Room, fit_window
from colligate.core.relevance import score_relevance
from colligate.core.run import Run, Shown
from colligate.core.strategy import Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Passage
from colligate.errors import ContextTooSmall, MissingCapability
from colligate.lab.baselines.shared import SearchMethod
from colligate.models import Capability, Message, Role
from colligate.readers.lookup import reserve_for_answer


@dataclass(frozen=True)
class FiM(SearchMethod):
    """Documents by calibrated attention, placed so that the best come first and last.

    Without attention, the method does `how=u-shape` and warns.

    Attributes:
        how: rank by attention (rank), best documents first and last (u-shape), or both; u-shape
            alone ranks by the reranker, the embedder or BM25, whichever the run has first
        documents: documents (or passages, by `units`) that are read, best first
    """

    name: ClassVar[str] = "fim"
    needs: ClassVar[Needs] = Needs(optional=frozenset({Capability.ATTENTION}))

    how: Literal["rank+u-shape", "rank", "u-shape"] = "rank+u-shape"
    documents: int = 20  # N of DuQUAD's Natural Questions
    units: Units = "auto"

    async def answer(self, question: str, run: Run) -> Answer:
        """Rank, place, read."""
        _, passages = await choose_units(
            question, run, self.units, self.documents, pool=self.documents, mode=self.mode
        )
        passages = [passage for passage in passages if passage.text.strip()]
        by, scores = "search", [-float(place) for place in range(len(passages))]
        with reserve_for_answer(run, lambda: passages):
            by, scores = await self._score(question, passages, run)
        ranked = sorted(range(len(passages)), key=lambda place: -scores[place])
        shown = [
            Shown(passages[place], scores[place], f"rank {rank} by {by}")
            for rank, place in enumerate(ranked, 1)
        ]
        if self.how != "rank":
            shown = place_in_u_shape(await _fit(question, shown, run))
        return await run.read(question, shown, form=self.form)

    async def _score(
        self, question: str, passages: Sequence[Passage], run: Run
    ) -> tuple[str, list[float]]:
        """Return what ranks the documents, and their scores."""
        if self.how != "u-shape" and passages:
            try:
                return "calibrated attention", await self._calibrate(question, passages, run)
            except (MissingCapability, ContextTooSmall) as error:
                run.warn(f"ranked without attention: {error}")
        return "relevance", await score_relevance(question, passages, run)

    async def _calibrate(self, question: str, passages: Sequence[Passage], run: Run) -> list[float]:
        """Return Attn(x, k) - Attn(dummy, k) of each document in its place."""
        began = time.perf_counter()
        true = await _measure(question, passages, run)
        dummies = [await _make_dummy(passage, run) for passage in passages]
        bias = await _measure(question, dummies, run)  # at once: two calls in DuQUAD's Table 8
        scores = [own - dummy for own, dummy in zip(true, bias, strict=True)]
        spans = tuple(passage.span for passage in passages)
        seconds = time.perf_counter() - began
        run.emit(Scored("calibrated attention", spans, tuple(scores), seconds))
        return scores


_READER_TOKENS = 4000  # of its instruction and its reply, at most


async def _fit(question: str, ranked: Sequence[Shown], run: Run) -> list[Shown]:
    """Return the best that fit the reader's window, by estimate: it would leave out the last."""

    def prompt(shown: Sequence[Shown]) -> list[Message]:
        passages = prompts.render_passages([each.passage for each in shown])
        return prompts.build_messages("", passages, prompts.render_question(question))

    return await fit_window(ranked, prompt, run, Room(_READER_TOKENS, last=True))


async def _measure(question: str, passages: Sequence[Passage], run: Run) -> list[float]:
    return await run.attention(*prompts.build_attention_prompt(question, passages, lead=False))


_DUMMY = "N/A "  # has no content; repeated until it is as long as a document


async def _make_dummy(passage: Passage, run: Run) -> Passage:
    """Return about as many tokens without content: the others keep their places in the prompt."""
    model = run.model(Role.SCORER)
    wanted = await model.count_tokens(f"{passage.title}\n{passage.text}")
    tokens = await model.count_tokens(_DUMMY * 16)
    filler = (_DUMMY * max(1, round(wanted * 16 / max(1, tokens)))).strip()
    return replace(passage, title="", text=filler)


T = TypeVar("T")


def place_in_u_shape(ranked: Sequence[T]) -> list[T]:
    """Place the best at both ends: ranks 1, 3, 5... from the front, 2, 4, 6... from the back.

    >>> place_in_u_shape([1, 2, 3, 4, 5])
    [1, 3, 5, 4, 2]
    """
    return [*ranked[::2], *ranked[1::2][::-1]]
