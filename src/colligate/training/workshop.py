"""What the work on each question or document stands on, and how it is carried out."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from colligate.documents import Document
from colligate.errors import ColligateError, NoDocuments, UsageError
from colligate.evaluation.datasets.corpus import Corpus, documents_of
from colligate.evaluation.datasets.sampling import HasId, some
from colligate.evaluation.estimate import MANY
from colligate.evaluation.inview import InView
from colligate.evaluation.question import Question
from colligate.evaluation.spending import Paid, RunPurse, Spending
from colligate.evaluation.suite import Dataset
from colligate.library.blocking import in_thread
from colligate.library.library import Library
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.strategies.kept import InMemory, Kept
from colligate.strategies.run import Run
from colligate.strategies.trace import Noted, Progressed, Trace
from colligate.training.card import Card
from colligate.training.curating import curated
from colligate.training.journal import Made, read_journal
from colligate.training.writing import written

if TYPE_CHECKING:
    from colligate.training.curation import Curation

I = TypeVar("I", bound=HasId)  # noqa: E741 (an item)


@dataclass
class Workshop:
    """What the work on each item stands on; made by `opened`.

    `questions` are those that are asked, drawn by seed and id. `identity` is what all of it is
    made with. The documents are those of `library`, else what `in_view` has of `dataset`.
    `judged_by` is the judge, None where none is named. `kept` is what strategies worked out about
    documents, for all items.
    """

    request: Curation
    system: str
    questions: tuple[Question, ...]
    identity: Mapping[str, Any]
    trace: Trace
    models: Mapping[Role, ChatModel]
    spending: Spending
    dataset: Dataset
    in_view: InView | None = None
    library: Library | None = None
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    judged_by: ChatModel | None = None
    kept: Kept = field(default_factory=InMemory)

    @asynccontextmanager
    async def sources(self, question: Question) -> AsyncIterator[Sources]:
        """The documents that a question is asked over.

        Raises:
            ColligateError: they cannot be read or indexed.
        """
        if self.library is not None:
            yield self.library
            return
        assert self.in_view is not None
        async with self.in_view.of(self.dataset, question) as sources:
            yield sources

    def run(self, sources: Sources) -> Run:
        """A run whose models are the teacher, with a meter of its own, paid from the budget."""
        run = Run(
            sources,
            self.models,
            self.spending.meter(),
            reranker=self.reranker,
            embedder=self.embedder,
            kept=self.kept,
        )
        run.purse = RunPurse(self.spending, run.meter)
        return run

    def judge(self, run: Run) -> ChatModel:
        """The judge, its calls noted in the meter of a run.

        Raises:
            UsageError: none is named.
        """
        if self.judged_by is None:
            why = "the work is to be judged"
            raise UsageError("no judge is named", why, "name a --judge")
        return Paid(self.judged_by, self.spending, run.meter)

    def used(self, run: Run) -> dict[str, Any]:
        """What a run cost, as `Made.usage` has it.

        Raises:
            BudgetExceeded: the budget refused the run a call, so nothing made of it counts.
        """
        if isinstance(run.purse, RunPurse) and run.purse.refused is not None:
            raise run.purse.refused
        return run.meter.report().to_json()

    async def documents(self) -> list[Document]:
        """At most `limit` of the documents there are, drawn by seed and id as questions are.

        Raises:
            NoDocuments: there are none.
            ColligateError: they cannot be read.
        """
        limit, seed = self.request.limit, self.request.seed
        if self.library is not None:
            infos = some(await self.library.documents(), limit, seed)
            found = [await self.library.document(info.id) for info in infos]
        else:
            found = await in_thread(lambda: some(self._every_document(), limit, seed))
        if not found:
            raise NoDocuments("there are no documents", "", "name a --library or a --corpus")
        return found

    def _every_document(self) -> Iterator[Document]:
        if self.request.corpus is not None:
            unread: list[ColligateError] = []
            yield from Corpus(self.request.corpus).passages(unread.append)
            for error in unread:
                self.trace.emit(Noted(f"left out: {error}", warning=True))
            return
        seen = set()
        for question in self.questions:
            for document in documents_of(question):
                if document.id not in seen:
                    seen.add(document.id)
                    yield document

    def _standing(self) -> set[str]:
        """The items that need not be done any more; what was made of them is not held. Blocks."""
        there = read_journal(self.request.out)
        again = self.request.retry_failed
        return {id_ for id_, made in there.items() if not (again and made.error)}

    async def curated(
        self,
        items: Sequence[I],
        work: Callable[[I], Awaitable[Made]],
        *,
        filters: Sequence[str] = (),
        calls: float = 1.0,
    ) -> Card:
        """Do the work on what is not done yet, then write samples and card.

        `filters` are sentences for the card: what is left out or mended, and why. `calls` is
        about how many calls of a model an item takes. What stands is written too where the work
        ends before all is done.

        Raises:
            BudgetExceeded, EndpointUnreachable: the work ended before all was done.
            UsageError: the folder holds what was made with something else.
            ColligateError: what could not be read.
        """
        request, done = self.request, 0
        standing = await in_thread(self._standing)
        missing = [item for item in items if item.id not in standing]
        if len(missing) < len(items):
            kept = len(items) - len(missing)
            self.trace.emit(Noted(f"{kept:,} of {len(items):,} items are done"))
        if len(missing) * calls > MANY:
            about = round(len(missing) * calls, -2)
            said = f"{len(missing):,} items to come: about {about:,.0f} model calls"
            self.trace.emit(Noted(said))

        def on_done(id_: str, made: Made) -> None:
            nonlocal done
            done += 1
            what = f"{id_}: {made.error}" if made.error else id_
            self.trace.emit(Progressed("curating", done, len(missing), what))

        stopped: ColligateError | None = None
        try:
            await curated(
                items,
                work,
                request.out,
                identity=self.identity,
                arguments=request.arguments,
                concurrency=request.concurrency,
                timeout=request.timeout,
                retry_failed=request.retry_failed,
                on_done=on_done,
            )
        except UsageError:
            raise
        except ColligateError as error:
            stopped = error
        card = await in_thread(written, request, self.system, items, tuple(filters))
        if stopped is not None:
            raise stopped
        if request.held_out and not card.total("held_out"):
            what = f"nothing is held out of {card.items['done']:,} items"
            self.trace.emit(Noted(f"{what}: ask for more, or raise --held-out", warning=True))
        return card
