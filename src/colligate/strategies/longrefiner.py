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
        passages = await fitting(question, refined.passages, run, self.form)
        evidence = [e for e in refined.evidence if any(p.span == e.span for p in passages)]
        return await read(
            question, passages, run, strategy=self.name, evidence=evidence, form=self.form
        )
