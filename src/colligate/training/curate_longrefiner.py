"""Samples for LongRefiner's three adapters: query scope, structuring, selection by titles.

The teacher labels questions and chooses titles; structuring needs none of it, only documents that
have sections.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from colligate.bench.question import Question
from colligate.core.events import Listener, Noted
from colligate.core.parameters import require_min, set_parameters
from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.core.units import rank_documents
from colligate.documents import Document
from colligate.errors import MalformedOutput, UsageError
from colligate.library.in_memory import InMemorySources
from colligate.library.sources import SearchMode, Sources
from colligate.models import Capability, Role
from colligate.strategies.longrefiner.method import LongRefiner, Refiner, has_parts
from colligate.strategies.longrefiner.selection import selection_messages
from colligate.strategies.longrefiner.structuring import Structurer, Structuring
from colligate.training.card import Card
from colligate.training.curate import Curation, CurationContext, opened
from colligate.training.journal import Made
from colligate.training.longrefiner_samples import (
    MALFORMED,
    SCOPE,
    SELECTION,
    Label,
    Pairing,
    label_messages,
    scope_sample,
    selection_sample,
    structuring_pairs,
)
from colligate.training.longrefiner_samples import TASK as STRUCTURING
from colligate.training.samples import Sample

TASKS = (SCOPE, STRUCTURING, SELECTION)

WITHOUT_PARTS = "a document without parts to choose between: inference would not ask"

_TEACHER_TOKENS = 1024  # a teacher may think first

_FILTERS = {
    SCOPE: "scope: the label is the teacher's; a reply that is none, also when it is asked for"
    " again, is left out",
    STRUCTURING: "structuring: a document's headings are taken out of the text and make the"
    " skeleton; a pair is kept only where inference's reader brings at least {recovered:.0%} of"
    " the text back, and where the skeleton is no longer than inference lets a reply be",
    SELECTION: "selection: the titles are the teacher's, in reply to inference's own prompt; those"
    " that the document does not have are taken out, and replies with nothing else left out",
}


@dataclass(frozen=True)
class Settings(Pairing):
    """What can be set: the strategy's parameters that shape the prompts, and how pairs are made."""

    documents: int = LongRefiner.documents
    mode: SearchMode = LongRefiner.mode
    structuring: Structuring = Structuring.HEADINGS  # the teacher writes no structure by default
    outline_tokens: int = LongRefiner.outline_tokens

    name: ClassVar[str] = "longrefiner"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, documents=1, outline_tokens=1)


async def curate_longrefiner(request: Curation, on_event: Listener) -> Card:
    """Curate samples, and write what is done whatever happens; returns the card.

    Questions give scope labels and, each over its best documents, titles; documents give
    structuring pairs. Without questions only these are made.

    Raises:
        UsageError: the request is wrong, or the folder holds samples made otherwise.
        BudgetExceeded, EndpointUnreachable: the work ended before all was done.
        ColligateError: what could not be opened or read.
    """
    tasks = _tasks(request)
    settings = set_parameters(Settings, request.settings)
    asks = bool({SCOPE, SELECTION} & set(tasks))
    async with opened(
        request,
        on_event,
        system="longrefiner",
        needs=Needs(
            required=frozenset({Capability.CHAT} if asks else ()),
            searches=SELECTION in tasks,
            reads=SELECTION in tasks,
        ),
        tasks=tasks,
        made_by=(LongRefiner, Refiner, Label),
        settings=asdict(settings),
    ) as workshop:
        work = _Work(workshop, settings, tasks)
        questions = list(workshop.questions) if asks else []
        documents: list[Document] = []
        if STRUCTURING in tasks:
            documents = await asyncio.to_thread(_distinct, await workshop.documents(), workshop)
        items: list[Question | _Sectioned] = [*questions, *(_Sectioned(each) for each in documents)]
        calls = len(questions) * ((SCOPE in tasks) + (SELECTION in tasks) * settings.documents)
        return await workshop.curated(
            items,
            work.on,
            filters=[_FILTERS[task].format(**asdict(settings)) for task in tasks],
            calls=calls / max(1, len(items)),
        )


def _tasks(request: Curation) -> tuple[str, ...]:
    """The tasks that are asked for, or those that can be done.

    Raises:
        UsageError: there is no such task, or no questions for it.
    """
    for task in request.tasks:
        if task not in TASKS:
            what = f"LongRefiner has no task {task!r}"
            raise UsageError(what, f"there are {', '.join(TASKS)}")
    if request.questions is not None:
        return request.tasks or TASKS
    if lacking := [task for task in request.tasks if task != STRUCTURING]:
        raise UsageError(f"no {lacking[0]} without questions", "", "name a file of --questions")
    return (STRUCTURING,)


def _distinct(documents: Sequence[Document], workshop: CurationContext) -> list[Document]:
    """Those whose text none before has: else a pair could be learnt and held out at once."""
    first: dict[bytes, Document] = {}
    for document in documents:
        words = " ".join(document.text.split())
        digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()
        first.setdefault(digest, document)
    if again := len(documents) - len(first):
        what = f"{again:,} of {len(documents):,} documents are left out"
        workshop.trace.emit(Noted(f"{what}: others have the same text"))
    return list(first.values())


@dataclass(frozen=True)
class _Sectioned:
    """A document that pairs are made of, as an item beside questions."""

    document: Document

    @property
    def id(self) -> str:
        return f"document/{self.document.id}"


@dataclass(frozen=True)
class _Work:
    """What is done with a question, or with a document."""

    workshop: CurationContext
    settings: Settings
    tasks: Collection[str]

    async def on(self, item: Question | _Sectioned) -> Made:
        """The samples that an item gives."""
        if isinstance(item, _Sectioned):
            made = await asyncio.to_thread(structuring_pairs, item.document, self.settings)
            return _of(STRUCTURING, made)
        async with self._sources(item) as sources:
            run = self.workshop.run(sources)
            made = _together([made async for made in self._asked(item, run)])
            return replace(made, usage=self.workshop.used(run))

    @asynccontextmanager
    async def _sources(self, question: Question) -> AsyncIterator[Sources]:
        if SELECTION in self.tasks:
            async with self.workshop.sources(question) as sources:
                yield sources
        else:
            async with InMemorySources(()) as nothing:
                yield nothing

    async def _asked(self, question: Question, run: Run) -> AsyncIterator[Made]:
        if SCOPE in self.tasks:
            yield _of(SCOPE, await _scope(question, run))
        if SELECTION in self.tasks:
            mode, count = self.settings.mode, self.settings.documents
            for document in await rank_documents(question.text, run, count, mode):
                yield _of(SELECTION, await self._selection(question, document, run))

    async def _selection(self, question: Question, document: str, run: Run) -> Made:
        """What the teacher finds helpful of a document, asked as `Refiner` asks."""
        structurer = Structurer(
            self.settings.structuring,
            Refiner.least_words,
            Refiner.most_words,
            Refiner.coverage,
            self.settings.structuring_tokens,
        )
        article = await structurer.structure(await run.document(document), run)
        if not has_parts(article):
            return Made(discarded={WITHOUT_PARTS: 1})
        most_tokens = self.settings.outline_tokens
        messages = selection_messages(question.text, article, most_tokens=most_tokens)
        reply = await run.chat(messages, role=Role.WORKER, max_tokens=_TEACHER_TOKENS)
        return selection_sample(question, article, messages, reply)


async def _scope(question: Question, run: Run) -> Made:
    try:
        label = await run.structured(
            label_messages(question.text), Label, max_tokens=_TEACHER_TOKENS
        )
    except MalformedOutput:
        return Made(discarded={MALFORMED: 1})
    return Made((scope_sample(question, label.value),))


def _of(task: str, made: Made) -> Made:
    """The same, with the task's name before whatever is counted."""

    def named(counts: Mapping[str, int]) -> dict[str, int]:
        return {f"{task}: {what}": count for what, count in counts.items()}

    return replace(made, discarded=named(made.discarded), counts=named(made.counts))


def _together(parts: Iterable[Made]) -> Made:
    samples: list[Sample] = []
    discarded, counts = Counter[str](), Counter[str]()
    for made in parts:
        samples += made.samples
        discarded.update(made.discarded)
        counts.update(made.counts)
    return Made(tuple(samples), discarded, counts)
