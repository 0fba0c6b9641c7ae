"""Two hops: what is found for the question is itself looked up.

DualRAG's 2HopRAG (appendix H.1):

1. Retrieve 10 passages for the question.
2. Retrieve 10 more with the text of each passage as the query: up to 110, each once.
3. Answer once.

Its NativeRAG-200 is `retrieve-read` with `k=200`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from colligate.concurrency import gather
from colligate.core.answer import Answer
from colligate.core.run import Run, Shown
from colligate.lab.baselines.shared import SearchMethod
from colligate.library.ranking import titled_text


@dataclass(frozen=True)
class TwoHop(SearchMethod):
    """One search for the question, one with the text of each passage found, one answer.

    Passages are read in the order in which they were found, the question's own first.

    Attributes:
        k: passages of the search for the question
        more: passages of the search for each passage found
    """

    name: ClassVar[str] = "two-hop"
    LEAST: ClassVar[Mapping[str, float]] = {"more": 0}

    k: int = 10
    more: int = 10

    async def answer(self, question: str, run: Run) -> Answer:
        """Search twice, read once."""
        hits = await run.search(question, k=self.k, mode=self.mode)
        found = [Shown(hit.passage, hit.score, "found for the question") for hit in hits]
        # A search for a passage also finds that passage.
        hops = await gather(
            run.search(titled_text(hit.passage), k=self.more, mode=self.mode)
            for hit in hits
            if self.more
        )
        for first, further in zip(hits, hops, strict=False):
            why = f"found for {first.passage.title}"
            found += [Shown(hit.passage, hit.score, why) for hit in further]
        once: dict[object, Shown] = {}
        for each in found:
            once.setdefault(each.passage.span, each)
        return await run.read(question, list(once.values()), form=self.form)
