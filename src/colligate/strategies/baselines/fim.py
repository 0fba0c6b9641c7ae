"""Found in the Middle: documents by attention without its bias for places, best at both ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, TypeVar

from colligate.core.answer import Answer
from colligate.core.citing import Evidence
from colligate.core.events import Scored
from colligate.core.parameters import require_min
from colligate.core.prompts import build_attention_prompt
from colligate.core.reader import Form, fit_reader, read
from colligate.core.relevance import score_relevance
from colligate.core.run import Run
from colligate.core.strategy import Calls, Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Passage
from colligate.errors import ContextTooSmall, MissingCapability
from colligate.library.sources import SearchMode
from colligate.models import Capability, Role

T = TypeVar("T")

_DUMMY = "N/A "  # without content, as often as it takes to be as long as a document


@dataclass(frozen=True)
class FiM:
    """Documents by calibrated attention, placed so that the best stand first and last.

    Hsieh et al. 2024: the attention that the prompt's last token pays to a document is its
    relevance and what its place gets anyway, so the attention that a document without content
    gets in the same place is taken off. What remains ranks the documents. DuQUAD's text for its
    FiM row adds the U shape: ranks 1, 3, 5 from the front, 2, 4, 6 from the back.

    `how` leaves one of the two out: `u-shape` ranks by the reranker, the embedder or BM25,
    whichever the run has first; `rank` places the best first. `dummies`: `together` puts a
    document without content in every place at once, one pass; `each`, in one place after the
    other between the true documents, one pass a document, as the paper. A scorer that gives no
    attention leaves `u-shape`, and the answer says so. The paper's change of the attention inside
    the model while it answers is not done.
    """

    name: ClassVar[str] = "fim"
    needs: ClassVar[Needs] = Needs(optional=frozenset({Capability.ATTENTION}))
    calls: ClassVar[Calls] = Calls(1)

    how: Literal["rank+u-shape", "rank", "u-shape"] = "rank+u-shape"
    dummies: Literal["together", "each"] = "together"  # the paper: each
    documents: int = 20  # DuQUAD, Natural Questions
    units: Units = "auto"
    mode: SearchMode = SearchMode.HYBRID  # where there are more documents
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, documents=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Rank, place, read."""
        _, passages = await choose_units(
            question, run, self.units, self.documents, pool=self.documents, mode=self.mode
        )
        passages = [passage for passage in passages if passage.text.strip()]
        by, scores = await self._scores(question, passages, run)
        order = sorted(range(len(passages)), key=lambda place: -scores[place])
        # Where the window is too small it is the worst that are left out, not those at the end.
        kept = len(await fit_reader(question, [passages[place] for place in order], run, self.form))
        ranked = order[:kept]
        placed = ranked if self.how == "rank" else u_shape(ranked)
        evidence = [
            Evidence(passages[place].span, scores[place], f"rank {rank} by {by}")
            for rank, place in enumerate(ranked, 1)
        ]
        shown = [passages[place] for place in placed]
        return await read(
            question, shown, run, strategy=self.name, evidence=evidence, form=self.form
        )

    async def _scores(
        self, question: str, passages: Sequence[Passage], run: Run
    ) -> tuple[str, list[float]]:
        if self.how != "u-shape" and passages:
            try:
                return "calibrated attention", await self._calibrated(question, passages, run)
            except (MissingCapability, ContextTooSmall) as error:
                run.warn(f"ranked without attention: {error}")
        return "relevance", await score_relevance(question, passages, run)

    async def _calibrated(
        self, question: str, passages: Sequence[Passage], run: Run
    ) -> list[float]:
        began = time.perf_counter()
        true = await _attention(question, passages, run)
        dummies = [await _dummy(passage, run) for passage in passages]
        if self.dummies == "together":
            bias = await _attention(question, dummies, run)
        else:
            bias = []
            for place, dummy in enumerate(dummies):
                others = [*passages[:place], dummy, *passages[place + 1 :]]
                bias.append((await _attention(question, others, run))[place])
        scores = [own - dummy for own, dummy in zip(true, bias, strict=True)]
        spans = tuple(passage.span for passage in passages)
        seconds = time.perf_counter() - began
        run.emit(Scored("calibrated attention", spans, tuple(scores), seconds))
        return scores


async def _attention(question: str, passages: Sequence[Passage], run: Run) -> list[float]:
    return await run.attention(*build_attention_prompt(question, passages, lead=False))


async def _dummy(passage: Passage, run: Run) -> Passage:
    """About as many tokens without content: every document keeps its place in the prompt."""
    model = run.model(Role.SCORER)
    wanted = await model.count_tokens(f"{passage.title}\n{passage.text}")
    tokens = await model.count_tokens(_DUMMY * 16)
    filler = (_DUMMY * max(1, round(wanted * 16 / max(1, tokens)))).strip()
    return replace(passage, title="", text=filler)


def u_shape(ranked: Sequence[T]) -> list[T]:
    """The best at both ends: ranks 1, 3, 5... from the front, 2, 4, 6... from the back.

    >>> u_shape([1, 2, 3, 4, 5])
    [1, 3, 5, 4, 2]
    """
    return [*ranked[::2], *ranked[1::2][::-1]]
