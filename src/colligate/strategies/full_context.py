"""Full context: every document whole, in the given order, in one prompt.

The "vanilla" rows of DuQUAD, SPD-RAG and LongRefiner: one call with all documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from colligate.core.answer import Answer, Form
from colligate.core.run import Run, Shown
from colligate.core.strategy import Needs
from colligate.documents import Span


@dataclass(frozen=True)
class FullContext:
    """All documents whole in one prompt, in the order given."""

    name: ClassVar[str] = "full-context"
    needs: ClassVar[Needs] = Needs(searches=False)

    form: Form = Form.SHORT

    async def answer(self, question: str, run: Run) -> Answer:
        documents = [await run.document(info.id) for info in await run.sources.documents()]
        passages = [d.passage(Span(d.id, 0, len(d))) for d in documents if d.text.strip()]
        shown = [Shown(each, 1.0, "all documents are read whole") for each in passages]
        return await run.read(question, shown, form=self.form)
