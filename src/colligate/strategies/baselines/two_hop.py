"""Two hops: what is found for the question is itself looked up.

DualRAG's 2HopRAG (appendix H.1):

1. Retrieve 10 passages for the question.
2. Retrieve 10 more with the text of each passage as the query: up to 110, each once.
3. Answer once.

Its NativeRAG-200 is `retrieve-read` with `k=200`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.citing import Evidence
from colligate.core.parameters import require_min
from colligate.core.reader import Form, fit_reader, read
from colligate.core.run import Run, titled_text
from colligate.core.strategy import Calls, Needs
from colligate.documents import Hit, Passage
from colligate.library.sources import SearchMode


@dataclass(frozen=True)
class TwoHop:
    """One search for the question, one with the text of each passage found, one answer.

    Passages are read in the order in which they were found, the question's own first; those that
    do not fit the model's window are left out, the last first, with a warning.

    Attributes:
        k: passages of the search for the question
        more: passages of the search for each passage found
    """

    name: ClassVar[str] = "two-hop"
    needs: ClassVar[Needs] = Needs()
    calls: ClassVar[Calls] = Calls(1)

    k: int = 10
    more: int = 10
    mode: SearchMode = SearchMode.HYBRID  # the paper: a dense retriever
    form: Form = Form.JOINED

    def __post_init__(self) -> None:
        require_min(self, k=1, more=0)

    async def answer(self, question: str, run: Run) -> Answer:
        """Search twice, read once."""
        hits = await run.search(question, k=self.k, mode=self.mode)
        found = {hit.passage.span: (hit, "for the question") for hit in hits}
        # A search for a passage also finds that passage.
        hops = await gather(self._hop(hit.passage, run) for hit in hits if self.more)
        for first, further in zip(hits, hops, strict=False):
            for hit in further:
                found.setdefault(hit.passage.span, (hit, f"for {first.passage.title}"))
        passages = [hit.passage for hit, _ in found.values()]
        kept = await fit_reader(question, passages, run, self.form)
        evidence = [
            Evidence(hit.passage.span, hit.score, f"found {why}")
            for hit, why in list(found.values())[: len(kept)]
        ]
        return await read(
            question, kept, run, strategy=self.name, evidence=evidence, form=self.form
        )

    async def _hop(self, passage: Passage, run: Run) -> list[Hit]:
        return await run.search(titled_text(passage), k=self.more, mode=self.mode)
