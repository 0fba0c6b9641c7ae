"""LongRefiner: structure documents once, refine them to a token budget per question, read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from colligate.evidence.reader import Form
from colligate.models import Capability
from colligate.strategies.answer import Answer
from colligate.strategies.at_least import at_least
from colligate.strategies.maxp import best_documents
from colligate.strategies.reading import fitting, read
from colligate.strategies.refiner import Refiner
from colligate.strategies.run import Run
from colligate.strategies.strategy import Needs


@dataclass(frozen=True)
class LongRefiner(Refiner):
    """The best documents, refined to a token budget by their structure, then read.

    Documents are ranked by their best passage (MaxP); the first `documents` are refined as
    `Refiner` says.
    """

    name: ClassVar[str] = "longrefiner"
    needs: ClassVar[Needs] = Needs(optional=frozenset({Capability.LABELS}))

    documents: int = 8  # section 4.1
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, documents=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Find, refine, read."""
        best = await best_documents(question, run, self.documents, self.mode)
        refined = await self.refine(question, run, documents=best)
        by_score = {evidence.span: place for place, evidence in enumerate(refined.evidence)}
        ranked = sorted(refined.passages, key=lambda passage: by_score[passage.span])
        # Where the window is too small the worst are left out; the rest stay in their order.
        fit = {passage.span for passage in await fitting(question, ranked, run, self.form)}
        passages = [passage for passage in refined.passages if passage.span in fit]
        evidence = [each for each in refined.evidence if each.span in fit]
        return await read(
            question, passages, run, strategy=self.name, evidence=evidence, form=self.form
        )
