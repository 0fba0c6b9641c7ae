"""Curate samples for LongRefiner's three adapters: query scope, structuring, selection by titles.

The teacher labels questions and chooses titles; structuring needs no teacher, only documents that
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
from colligate.training.curate import Curation, CurationContext, open_curation
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
from colligate.training.samples import CuratedItem, Sample

_TASKS = (SCOPE, STRUCTURING, SELECTION)

WITHOUT_PARTS = "a document without parts to choose between: inference would not ask"

_TEACHER_TOKENS = 1024  # a teacher may think first


@dataclass(frozen=True)
class CurationSettings(Pairing):
    """The strategy's parameters that shape the prompts, and how pairs are made."""

    documents: int = LongRefiner.documents
    mode: SearchMode = LongRefiner.mode
    structuring: Structuring = Structuring.HEADINGS  # the teacher writes no structure by default
    outline_tokens: int = LongRefiner.outline_tokens

    name: ClassVar[str] = LongRefiner.name

    def __post_init__(self) -> None:
        super().__post_init__()
        require_min(self, documents=1, outline_tokens=1)


async def curate_longrefiner(request: Curation, on_event: Listener) -> Card:
    """Curate samples; what is done is written, whatever happens. Returns the card.

    Questions give scope labels and, each over its best documents, titles; documents give
    structuring pairs. Without questions only these are made.

    Raises:
        UsageError: the request is wrong, or the folder was begun with something else.
        BudgetExceeded, EndpointUnreachable: the work ended before all was done.
        ColligateError: something cannot be opened or read.
    """
    tasks = _check_tasks(request)
    settings = set_parameters(CurationSettings, request.settings)
    asks = bool({SCOPE, SELECTION} & set(tasks))
    async with open_curation(
        request,
        on_event,
        system=LongRefiner.name,
        needs=Needs(
            required=frozenset({Capability.CHAT} if asks else ()),
            searches=SELECTION in tasks,
            reads=SELECTION in tasks,
        ),
        tasks=tasks,
        prompts_of=(LongRefiner, Refiner, Label),
        settings=asdict(settings),
    ) as context:
        work = _Work(context, settings, tasks)
        questions = list(context.questions) if asks else []
        documents: list[Document] = []
        if STRUCTURING in tasks:
            every = await context.load_documents()
            documents = await asyncio.to_thread(_distinct, every, context)
        items: list[Question | _Sectioned] = [*questions, *(_Sectioned(each) for each in documents)]
        calls = len(questions) * ((SCOPE in tasks) + (SELECTION in tasks) * settings.documents)
        return await context.curate(
            items,
            work,
            filters=[_FILTERS[task].format(**asdict(settings)) for task in tasks],
            calls=calls / max(1, len(items)),
        )


_FILTERS = {
    SCOPE: "scope: the label is the teacher's; a reply that is not a label, also when asked again,"
    " is left out",
    STRUCTURING: "structuring: a document's headings are taken out of the text and make the"
    " skeleton; a pair is kept only if inference's reader brings at least {recovered:.0%} of"
    " the text back, and if the skeleton is no longer than inference lets a reply be",
    SELECTION: "selection: the titles are the teacher's, in reply to inference's own prompt; titles"
    " that the document does not have are taken out, and replies with no other are left out",
}


def _check_tasks(request: Curation) -> tuple[str, ...]:
    """Return the tasks that are asked for, or those that can be done."""
    for task in request.tasks:
        if task not in _TASKS:
            what = f"LongRefiner has no task {task!r}"
            raise UsageError(what, f"there are {', '.join(_TASKS)}")
    if request.questions is not None:
        return request.tasks or _TASKS
    if lacking := [task for task in request.tasks if task != STRUCTURING]:
        raise UsageError(f"no {lacking[0]} without questions", "", "name a file of --questions")
    return (STRUCTURING,)


def _distinct(documents: Sequence[Document], context: CurationContext) -> list[Document]:
    """Leave out repeated texts: a pair could be trained on and held out at the same time."""
    first: dict[bytes, Document] = {}
    for document in documents:
        words = " ".join(document.text.split())
        digest = hashlib.sha256(words.encode("utf-8", "surrogatepass")).digest()
        first.setdefault(digest, document)
    if again := len(documents) - len(first):
        what = f"{again:,} of {len(documents):,} documents are left out"
        context.trace.emit(Noted(f"{what}: others have the same text"))
    return list(first.values())


@dataclass(frozen=True)
class _Sectioned:
    """A document that pairs are made of, as an item."""

    document: Document

    @property
    def id(self) -> str:
        return f"document/{self.document.id}"


@dataclass(frozen=True)
class _Work:
    """The work on a question, or on a document."""

    context: CurationContext
    settings: CurationSettings
    tasks: Collection[str]

    async def __call__(self, item: Question | _Sectioned) -> CuratedItem:
        if isinstance(item, _Sectioned):
            pairs = await asyncio.to_thread(structuring_pairs, item.document, self.settings)
            return _prefixed(STRUCTURING, pairs)
        async with self._sources(item) as sources:
            run = self.context.start_run(sources)
            parts = _combine([part async for part in self._ask(item, run)])
            return replace(parts, usage=self.context.usage_of(run))

    @asynccontextmanager
    async def _sources(self, question: Question) -> AsyncIterator[Sources]:
        if SELECTION in self.tasks:
            async with self.context.sources(question) as sources:
                yield sources
        else:
            async with InMemorySources(()) as nothing:
                yield nothing

    async def _ask(self, question: Question, run: Run) -> AsyncIterator[CuratedItem]:
        if SCOPE in self.tasks:
            yield _prefixed(SCOPE, await _label_scope(question, run))
        if SELECTION in self.tasks:
            mode, count = self.settings.mode, self.settings.documents
            for document in await rank_documents(question.text, run, count, mode):
                yield _prefixed(SELECTION, await self._select(question, document, run))

    async def _select(self, question: Question, document: str, run: Run) -> CuratedItem:
        """Ask which titles of a document help, as `Refiner` asks."""
        structurer = Structurer(
            self.settings.structuring,
            Refiner.least_words,
            Refiner.most_words,
            Refiner.coverage,
            self.settings.structuring_tokens,
        )
        article = await structurer.structure(await run.document(document), run)
        if not has_parts(article):
            return CuratedItem(discarded={WITHOUT_PARTS: 1})
        most_tokens = self.settings.outline_tokens
        messages = selection_messages(question.text, article, most_tokens=most_tokens)
        reply = await run.chat(messages, role=Role.WORKER, max_tokens=_TEACHER_TOKENS)
        return selection_sample(question, article, messages, reply)


async def _label_scope(question: Question, run: Run) -> CuratedItem:
    try:
        label = await run.structured(
            label_messages(question.text), Label, max_tokens=_TEACHER_TOKENS
        )
    except MalformedOutput:
        return CuratedItem(discarded={MALFORMED: 1})
    return CuratedItem((scope_sample(question, label.value),))


def _prefixed(task: str, item: CuratedItem) -> CuratedItem:
    """Put the task's name before whatever is counted."""

    def named(counts: Mapping[str, int]) -> dict[str, int]:
        return {f"{task}: {what}": count for what, count in counts.items()}

    return replace(item, discarded=named(item.discarded), counts=named(item.counts))


def _combine(parts: Iterable[CuratedItem]) -> CuratedItem:
    samples: list[Sample] = []
    discarded, counts = Counter[str](), Counter[str]()
    for part in parts:
        samples += part.samples
        discarded.update(part.discarded)
        counts.update(part.counts)
    return CuratedItem(tuple(samples), discarded, counts)
