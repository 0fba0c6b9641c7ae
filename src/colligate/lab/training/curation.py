"""Curate samples: what all methods share, from the request to the samples and their data card.

A method opens a curation (`open_curation`) and gives the work on each question or document to
`CurationContext.curate`, which resumes an interrupted curation. A wrong request, or a folder that
was begun with something else, is a UsageError; BudgetExceeded and EndpointUnreachable end the work
early.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from colligate.concurrency import in_thread
from colligate.core.events import Listener, Noted, Trace, to_plain
from colligate.core.parameters import require_min
from colligate.core.run import Run
from colligate.core.strategy import Needs
from colligate.documents import Document
from colligate.errors import ColligateError, MissingPath, NoDocuments, UsageError
from colligate.lab.bench.corpus import INDEXES, CorpusResolver
from colligate.lab.bench.datasets import read_questions
from colligate.lab.bench.datasets.passages import iterate_documents, load_documents
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.question import Question, draw_sample
from colligate.lab.bench.suites import Dataset
from colligate.lab.jobs.files import ResultFile, lock_folder
from colligate.lab.jobs.identity import (
    PROMPTS,
    model_records,
    path_digest,
    prompt_digests,
    versions,
)
from colligate.lab.jobs.job import IdentityRecord, Job, RecordFile
from colligate.lab.jobs.spending import PaidJudge, SharedTokenBudget, Spending
from colligate.lab.training.samples import (
    HELD_OUT,
    TRAIN,
    Card,
    CuratedItem,
    Sample,
    count_samples,
    write_card,
    write_samples,
)
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.models.cache import KeyValueStore, MemoryStore
from colligate.models.download import hash_file
from colligate.readers.quoting import QuotingReader

I = TypeVar("I", Question, Document, Question | Document)  # noqa: E741 (an item)


@dataclass(frozen=True)
class Curation:
    """A request to curate samples into a folder.

    Questions are asked over a `corpus` (passages, or a folder of documents; questions that name
    documents of it are asked over these), or over the documents that come with each. The reader
    of `names` is the teacher, in every role but the judge's. `tasks` are names, without any all of
    the system's; `limit` is how many questions or documents, None all. `held_out` is the share of
    them that is kept from training. `max_tokens_total` limits what this process spends, `timeout`
    the seconds of each item. `settings` are parameters of the system as texts such as "k=3".
    `arguments` are recorded as they are.
    """

    out: Path
    questions: Path | None = None
    format: str = "auto"
    corpus: Path | None = None
    names: ModelNames = field(default_factory=ModelNames)
    tasks: tuple[str, ...] = ()
    limit: int | None = None
    seed: int = 0
    held_out: float = 0.1
    concurrency: int = 1
    max_tokens_total: int | None = None
    timeout: float | None = None
    retry_failed: bool = False
    settings: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not 0 <= self.held_out < 1:
            why = "expected a share from 0 to less than 1"
            raise UsageError(f"cannot hold out {self.held_out}", why, "name one such as 0.1")
        require_min(self, limit=1, concurrency=1, max_tokens_total=1, timeout=0.001)

    @property
    def sources(self) -> dict[str, Path]:
        """The paths of what is named, questions and corpus."""
        named = {"questions": self.questions, "corpus": self.corpus}
        return {what: path for what, path in named.items() if path is not None}

    def choose_tasks(self, system: str, known: tuple[str, ...]) -> tuple[str, ...]:
        """Return the tasks that are asked for, or all of the system's; UsageError for others."""
        if unknown := [task for task in self.tasks if task not in known]:
            raise UsageError(f"{system} has no task {unknown[0]!r}", f"it has {', '.join(known)}")
        return self.tasks or known

    def require_questions(self, why: str) -> None:
        """Raise UsageError if no file of questions is named."""
        if self.questions is None:
            raise UsageError("no questions are named", why, "give --questions FILE")


@dataclass(frozen=True)
class CuratedMethod:
    """The method that samples are made for.

    The teacher must meet `needs`, which also say whether documents are read and searched at all;
    if nothing is required no teacher is opened. `prompts_of` are the classes whose modules write
    prompts, `settings` the configuration of the system: both belong to the identity.
    """

    system: str
    tasks: Sequence[str]
    needs: Needs
    prompts_of: Sequence[type] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)


@asynccontextmanager
async def open_curation(
    request: Curation, on_event: Listener, method: CuratedMethod
) -> AsyncIterator[CurationContext]:
    """Lock the folder and open models and documents, until the end."""
    system, needs = method.system, method.needs
    reader = request.names.models.get(Role.READER) or request.names.settings.reader
    if needs.required and reader is None:
        # A model that was chosen by default is not one to learn from.
        why = "it writes the samples"
        raise UsageError("no teacher is named", why, "give --teacher MODEL")
    trace = Trace([on_event], keep=False)
    asked = await in_thread(_read_questions, request, needs)
    async with AsyncExitStack() as stack:
        stack.enter_context(lock_folder(request.out))
        session = await stack.enter_async_context(request.names.session())
        models: dict[Role, ChatModel] = {}
        if needs.required:
            models = await session.open_models(trace, [Role.READER, Role.JUDGE])
        records = await model_records(models, None, None)
        judge = models.pop(Role.JUDGE, None)
        for line in await session.check_models(system, needs, models) if models else ():
            trace.emit(Noted(line, warning=True))
        embedder = await session.open_embedder(trace) if needs.searches else None
        reranker = await session.open_reranker(trace) if needs.searches and models else None
        records |= await model_records({}, embedder, reranker)
        file = "" if request.questions is None else str(request.questions.absolute())
        dataset = Dataset("questions", file)
        if request.corpus is not None:
            corpus = str(request.corpus.absolute())
            dataset = replace(dataset, over="documents", corpus=corpus)
        corpora = CorpusResolver(Path(), request.out / INDEXES, embedder, trace)
        await stack.enter_async_context(corpora)
        if needs.reads:
            asked = [await corpora.resolve(dataset, question) for question in asked]
        named = {"teacher" if r == Role.READER else r: asdict(each) for r, each in records.items()}
        files = request.sources.items()
        identity = {
            "system": system,
            "tasks": sorted(method.tasks),
            "settings": to_plain(method.settings),
            "seed": request.seed,
            "models": named,
            "data": {what: await in_thread(path_digest, path) for what, path in files},
            PROMPTS: await in_thread(prompt_digests, method.prompts_of),
        }
        known = request, system, tuple(asked), identity, trace, models, dataset, corpora
        spending = Spending(request.max_tokens_total)
        yield CurationContext(*known, spending, embedder, reranker, judge)


@dataclass
class CurationContext:
    """The models, documents and budget that the work on each item uses.

    `questions` are those that are asked, drawn by seed and id. `identity` is what the samples are
    made with. The documents are what `corpora` has of `dataset`. `judge` is None if none is named.
    `store` is what strategies know about documents, for all items.
    """

    request: Curation
    system: str
    questions: tuple[Question, ...]
    identity: Mapping[str, Any]
    trace: Trace
    models: Mapping[Role, ChatModel]
    dataset: Dataset
    corpora: CorpusResolver
    spending: Spending = field(default_factory=Spending)
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    judge: ChatModel | None = None
    store: KeyValueStore = field(default_factory=MemoryStore)

    async def curate(
        self, items: Mapping[str, I], work: Callable[[I], Awaitable[CuratedItem]]
    ) -> Card:
        """Do what is not done of items by id; then, or if it ends early, write samples and card."""
        request = self.request
        job: Job[str, CuratedItem, IdentityRecord] = Job(
            request.out,
            CURATION,
            JOURNAL,
            self.trace,
            phase="curating",
            concurrency=request.concurrency,
            timeout=request.timeout,
            retry_failed=request.retry_failed,
            fail=CuratedItem.failed,
        )
        stopped: ColligateError | None = None
        async with job.resume(IdentityRecord(self.identity), request.arguments):
            missing = {id_: item for id_, item in items.items() if job.is_missing(id_)}
            if len(missing) < len(items):
                done = len(items) - len(missing)
                self.trace.emit(Noted(f"{done:,} of {len(items):,} items are done"))
            try:
                await job.run(missing, work)
            except ColligateError as error:
                stopped = error
        card = await in_thread(_write_samples, request, self.system, items, job.results)
        if stopped is not None:
            raise stopped
        if request.held_out and not card.total("held_out"):
            what = f"nothing is held out of {card.items['done']:,} items"
            text = f"{what}: take more items (--limit), or raise --held-out"
            self.trace.emit(Noted(text, warning=True))
        return card

    def sources(self, question: Question) -> AbstractAsyncContextManager[Sources]:
        """Open the documents that a question is asked over."""
        return self.corpora.open_sources(self.dataset, question)

    def start_run(self, sources: Sources) -> Run:
        """Return a run of the teacher with a meter of its own, paid from the job's budget."""
        run = Run(
            sources,
            self.models,
            self.spending.meter(),
            reranker=self.reranker,
            reader=QuotingReader(),
            embedder=self.embedder,
            store=self.store,
        )
        run.tokens = SharedTokenBudget(self.spending, run.meter)
        return run

    def judge_of(self, run: Run) -> ChatModel:
        """Return the judge that is named, whose calls count in the meter of a run."""
        assert self.judge is not None
        return PaidJudge(self.judge, self.spending, run.meter)

    def usage_of(self, run: Run) -> dict[str, Any]:
        """Return what a run cost; BudgetExceeded if it was refused a call, so it does not count."""
        if isinstance(run.tokens, SharedTokenBudget) and run.tokens.refused is not None:
            raise run.tokens.refused
        return run.meter.report().to_json()

    async def load_documents(self) -> list[Document]:
        """Load at most `limit` of the documents, drawn by seed and id as questions are."""
        limit, seed = self.request.limit, self.request.seed
        found = await in_thread(lambda: draw_sample(self._every_document(), limit, seed))
        if not found:
            raise NoDocuments("there are no documents", "", "name a --corpus")
        return found

    def _every_document(self) -> Iterator[Document]:
        if self.request.corpus is not None:
            unread: list[ColligateError] = []
            yield from iterate_documents(self.request.corpus, unread.append)
            for error in unread:
                self.trace.emit(Noted(f"left out: {error}", warning=True))
            return
        seen = set()
        for question in self.questions:
            for document in load_documents(question):
                if document.id not in seen:
                    seen.add(document.id)
                    yield document


# The files of a curation in progress: a record, and a line for each finished item.
CURATION = RecordFile(
    "curation.json", IdentityRecord, "a folder of curated samples", "colligate train curate --out"
)

JOURNAL: ResultFile[str, CuratedItem] = ResultFile(
    "journal.jsonl",
    lambda line: (str(line["item"]), CuratedItem.from_json(line)),
    lambda id_, item: {"item": id_, **item.to_json()},
    "a curated item",
    "delete the line: the same command does its item again",
)


def _read_questions(request: Curation, needs: Needs) -> list[Question]:
    """Read the questions that are asked; none if no file is named. Checks the paths."""
    if (corpus := request.corpus) is not None:
        if not corpus.exists():
            raise MissingPath(f"there is no {corpus}", "", "check the path")
        if request.out.resolve().is_relative_to(corpus.resolve()):
            why = "what is written there would be among the documents"
            raise UsageError(f"{request.out} lies in {corpus}", why, "name a folder outside it")
    if request.questions is None:
        return []
    questions = read_questions(request.questions, request.format)
    asked = draw_sample(questions, request.limit, request.seed)
    if not asked:
        raise UsageError(f"{request.questions} holds no questions")
    if needs.reads and corpus is None:
        bare = next((question for question in asked if not question.documents), None)
        if bare is not None:
            why = f"question {bare.id} has no documents"
            raise UsageError("there is nothing to read", why, "name a --corpus")
    return asked


# From the finished items to files of samples, split by question, and their data card.
def _write_samples(
    request: Curation,
    system: str,
    items: Mapping[str, Question | Document],
    results: Mapping[str, CuratedItem],
) -> Card:
    done = {id_: results[id_] for id_ in items if id_ in results}
    splits: dict[str, list[Sample]] = {"train": [], "held_out": []}
    for id_, made in done.items():
        # Data sets have some questions, and some texts, under several ids.
        key = " ".join(items[id_].text.casefold().split())
        split = "held_out" if is_held_out(key, request.held_out, request.seed) else "train"
        splits[split] += made.samples
    files = {TRAIN: splits["train"], HELD_OUT: splits["held_out"]}
    for name, samples in files.items():
        write_samples(request.out / name, samples)
    record = CURATION.read(request.out)
    failed = sum(bool(each.error) for each in done.values())
    card = Card(
        system=system,
        items={"asked": len(items), "done": len(done), "failed": failed},
        sources={what: str(path) for what, path in request.sources.items()},
        made_with=record.identity,
        split={
            "held out": request.held_out,
            "kept apart by": "a question's words, or the document's where there is no question",
            "seed": request.seed,
        },
        files={name: hash_file(request.out / name) for name in files},
        versions=versions(),
        sessions=tuple(asdict(session) for session in record.sessions),
        **count_samples(done.values(), splits),
    )
    write_card(request.out, card)
    return card


def is_held_out(key: str, share: float, seed: int) -> bool:
    """Whether a question or document is kept from training: the same at every size of a set."""
    # Not the hash of `draw_sample`: otherwise the first that it draws would all be held out.
    whole = hashlib.sha256(f"held out\n{seed}\n{key}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(whole[:8], "big") < share * 2**64
