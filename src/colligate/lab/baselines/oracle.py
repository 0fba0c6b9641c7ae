"""The oracle: the documents that hold the answer, and nothing else.

DualRAG's Oracle: what perfect retrieval would give.

1. Take the supporting sentences of each gold document, or the whole document if the data set names
   none, in the order in which the data set names them.
2. Answer once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import ClassVar, Literal

from colligate.core.answer import Answer
from colligate.core.run import Run, Shown
from colligate.core.strategy import Needs
from colligate.documents import Passage
from colligate.documents.locating import locate
from colligate.errors import UsageError
from colligate.lab.baselines.shared import Baseline


@dataclass(frozen=True)
class Oracle(Baseline):
    """What the data set says holds the answer, read alone: what perfect retrieval would give.

    If a sentence is not found in its document, the whole document is read, with a warning. `gold`
    and `sentences`, pairs of an id and a sentence, are filled by the bench for each question: the
    method runs only there.

    Attributes:
        gold: ids of the documents that hold the answer, which a bench fills in
        level: read the sentences that hold the answer, or their whole documents
    """

    name: ClassVar[str] = "oracle"
    needs: ClassVar[Needs] = Needs(searches=False)

    gold: tuple[str, ...] = ()
    sentences: tuple[tuple[str, str], ...] = ()
    level: Literal["sentences", "documents"] = "sentences"  # as in DualRAG's code

    async def answer(self, question: str, run: Run) -> Answer:
        """Read the gold sentences or documents."""
        named: dict[str, list[str]] = {}
        for name, sentence in self.sentences:
            named.setdefault(name, []).append(sentence)
        for name in self.gold:
            named.setdefault(name, [])
        if not named:
            raise UsageError(
                "the oracle has no gold documents",
                "it runs only in the bench, on questions whose data set names them",
                "use another strategy",
            )
        passages = [each for name in named for each in await self._take(name, named[name], run)]
        why = "the data set says that it holds the answer"
        shown = [Shown(each, 1.0, why) for each in passages if each.text.strip()]
        return await run.read(question, shown, form=self.form)

    async def _take(self, name: str, sentences: list[str], run: Run) -> list[Passage]:
        """Return these sentences of a document, or all of it."""
        document = await run.document(name)
        whole = [document.passage(document.span(0, len(document)))]
        if self.level == "documents" or not sentences:
            return whole
        # Locating a sentence in a long document takes too long for the event loop.
        found = await asyncio.to_thread(lambda: [locate(each, document) for each in sentences])
        places = [document.passage(each.span) for each in found if each is not None]
        if len(places) < len(found):
            run.warn(f"a supporting sentence is not in {name}: the document is read whole")
            return whole
        return places
