"""What a curation is asked for, and what its work stands on: models, questions, documents."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from colligate.bench.corpus import CorpusResolver
from colligate.bench.datasets.formats import read_questions
from colligate.bench.datasets.passages import iterate_documents, load_documents
from colligate.bench.datasets.sampling import HasId, draw_sample
from colligate.bench.identity import file_digest, path_digest, prompt_digests
from colligate.bench.participants import Named, records_of
from colligate.bench.plan import MANY
from colligate.bench.provenance import Invocation
from colligate.bench.question import Question
from colligate.bench.suites import Dataset
from colligate.concurrency import in_thread
from colligate.core.events import Listener, Noted, Progressed, Trace, to_plain
from colligate.core.parameters import require_min
from colligate.core.run import KeyValueStore, MemoryStore, Run
from colligate.core.strategy import Needs
from colligate.documents import Document
from colligate.errors import (
    BudgetExceeded,
    ColligateError,
    EndpointUnreachable,
    MissingPath,
    NoDocuments,
    NotAuthorised,
    RateLimited,
    ServerFailed,
    UsageError,
    cause,
)
from colligate.jobs import identity as machine
from colligate.jobs.files import held, make, write_whole
from colligate.jobs.spending import Paid, SharedTokenBudget, Spending
from colligate.library.library import AsyncLibrary
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Reranker, Role
from colligate.session import report_ingestion
from colligate.training.card import Card, summed, write_card
from colligate.training.going_on import hold_to
from colligate.training.journal import Journal, Made, read_journal
from colligate.training.samples import HELD_OUT, TRAIN, Sample, write_samples

# Making samples item by item, so that work which was stopped goes on with the same command.

__all__ = ["RECORD", "Made", "OnDone", "Work", "curated", "held", "read_record"]

RECORD = "curation.json"

_IN_VAIN = 10  # items in a row without any model to ask
_NOBODY_THERE = (EndpointUnreachable, NotAuthorised, RateLimited, ServerFailed)

I = TypeVar("I", bound=HasId)  # noqa: E741 (an item)
Work = Callable[[I], Awaitable[Made]]
OnDone = Callable[[str, Made], None]


@contextmanager
def held_rows(folder: Path) -> Iterator[None]:
    """The folder, made if it is not there, for this process alone.

    Raises:
        UsageError: another has it, or it cannot be made.
    """
    make(folder)
    with held(folder):
        yield


async def curated(
    items: Sequence[I],
    work: Work[I],
    out: Path,
    *,
    identity: Mapping[str, Any],
    arguments: Mapping[str, Any] | None = None,
    concurrency: int = 1,
    timeout: float | None = None,
    retry_failed: bool = False,
    on_done: OnDone = lambda *_: None,
) -> list[tuple[str, Made]]:
    """Do what is not done yet, `concurrency` items at once; what each item gave, in their order.

    The folder must be there, and be this process's (`held`). An item whose work raises a
    ColligateError, or takes longer than `timeout` seconds, is put down as failed; `retry_failed`
    does again what failed before. `identity` is JSON, what all of it is made with; `arguments`
    are those of the command, kept on record.

    Raises:
        UsageError: the folder holds what was made with something else.
        BudgetExceeded: the budget of all of it is spent; what was refused is not put down.
        EndpointUnreachable: nobody could be asked any more.
        FaultyRecord: the journal is damaged.
    """
    ids = [item.id for item in items]
    if len(set(ids)) < len(ids):
        raise ValueError("two items have the same id")

    def wanted(item: I) -> bool:
        made = journal.made.get(item.id)
        return made is None or (retry_failed and bool(made.error))

    with Journal(out) as journal:
        before = read_record(out) if journal.made else Record(identity)
        hold_to(before.identity, identity, out, "samples")
        session = await in_thread(_session, arguments or {})
        record = replace(before, sessions=(*before.sessions, session))
        _write_record(out, record)
        try:
            curating = _Curating(work, journal, timeout, on_done)
            await curating.run([item for item in items if wanted(item)], concurrency)
        finally:
            ended = replace(session, ended=_now())
            _write_record(out, replace(record, sessions=(*before.sessions, ended)))
        return [(id_, journal.made[id_]) for id_ in ids]


@dataclass
class _Curating:
    """The work under way: whether it was stopped, and how many items in a row nobody answered."""

    work: Callable[[Any], Awaitable[Made]]
    journal: Journal
    timeout: float | None
    on_done: OnDone
    _stopped: ColligateError | None = field(default=None, init=False)
    _in_vain: int = field(default=0, init=False)
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def run(self, items: Sequence[HasId], concurrency: int) -> None:
        at_once = asyncio.Semaphore(concurrency)
        try:
            async with asyncio.TaskGroup() as group:
                for item in items:
                    await at_once.acquire()
                    if self._stopped is not None:
                        break
                    doing = group.create_task(self._one(item))
                    doing.add_done_callback(lambda _: at_once.release())
        except BaseExceptionGroup as group:
            raise cause(group) from group
        if self._stopped is not None:
            raise self._stopped

    async def _one(self, item: HasId) -> None:
        error: ColligateError | None = None
        made = Made()
        try:
            async with asyncio.timeout(self.timeout) as deadline:
                made = await self.work(item)
        except TimeoutError:
            if not deadline.expired():
                raise
            made = Made.failed("Timeout", f"not done within {self.timeout:g} seconds")
        except ColligateError as trouble:
            error = trouble
        except BaseExceptionGroup as group:
            if group.split(ColligateError)[1] is not None:
                raise
            # A call that the budget refused stops all of it, whatever else went wrong beside it.
            error = cause(group.subgroup(BudgetExceeded) or group)  # type: ignore[assignment]
        if isinstance(error, BudgetExceeded):
            self._stopped = self._stopped or error
            return
        if error is not None:
            made = Made.failed(type(error).__name__, str(error))
        async with self._writing:
            await in_thread(self.journal.add, item.id, made)
        self._look_out(error)
        self.on_done(item.id, made)

    def _look_out(self, error: ColligateError | None) -> None:
        """Stop where nobody answers any more: hours of failures would tell nothing."""
        self._in_vain = self._in_vain + 1 if isinstance(error, _NOBODY_THERE) else 0
        if self._in_vain >= _IN_VAIN and error is not None:
            what = f"the last {_IN_VAIN} items all failed"
            hint = "the same command with --retry-failed goes on"
            self._stopped = self._stopped or EndpointUnreachable(what, str(error), hint)


@dataclass(frozen=True)
class Record:
    """What a folder's samples are made with, and each time that the command ran.

    `identity` is the same for all of them.
    """

    identity: Mapping[str, Any]
    sessions: tuple[Invocation, ...] = ()


def read_record(folder: Path) -> Record:
    """What the samples of a folder are made with.

    Raises:
        UsageError: nobody knows.
    """
    file = folder / RECORD
    hint = "name another --out"
    try:
        whole = json.loads(file.read_text("utf-8"))
        sessions = tuple(Invocation(**session) for session in whole["sessions"])
        return Record(dict(whole["identity"]), sessions)
    except FileNotFoundError:
        why = f"without {RECORD} nobody knows what it was made with"
        raise UsageError(f"{folder} holds a journal", why, hint) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"cannot read {file}", f"{type(error).__name__}: {error}", hint) from error


def _write_record(folder: Path, record: Record) -> None:
    """Put it down whole: a process killed meanwhile leaves what was there before. Blocks."""
    whole = {"identity": record.identity, "sessions": [asdict(each) for each in record.sessions]}
    write_whole(folder / RECORD, [json.dumps(whole, ensure_ascii=False, indent=1)])


def _session(arguments: Mapping[str, Any]) -> Invocation:
    """One that begins now. Blocks."""
    return Invocation(_now(), "", machine.commit(), machine.hardware(), dict(arguments))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# From what the journal holds to files of samples, split by question, and their data card.


def written(
    request: Curation, system: str, items: Sequence[HasId], filters: tuple[str, ...]
) -> Card:
    """Write what the journal holds of these items: the samples, split, and the card. Blocks."""
    journal = read_journal(request.out)
    made = {item.id: journal[item.id] for item in items if item.id in journal}
    splits: dict[str, list[Sample]] = {"train": [], "held_out": []}
    asked: dict[str, list[HasId]] = {"train": [], "held_out": []}
    for item in items:
        if item.id in made:
            held_out = is_held_out(told_apart_by(item), request.held_out, request.seed)
            split = "held_out" if held_out else "train"
            splits[split] += made[item.id].samples
            asked[split].append(item)
    files = {TRAIN: splits["train"], HELD_OUT: splits["held_out"]}
    for name, samples in files.items():
        write_samples(request.out / name, samples)
    record = read_record(request.out)
    card = Card(
        system=system,
        items={
            "asked": len(items),
            "done": len(made),
            "failed": sum(bool(each.error) for each in made.values()),
        },
        filters=filters,
        sources=_sources(request),
        made_with=record.identity,
        split={
            "held out": request.held_out,
            "kept apart by": "a question's words, or the document where there is no question",
            "seed": request.seed,
            **_shared_gold(asked["train"], asked["held_out"]),
            **_shared_documents(splits["train"], splits["held_out"]),
        },
        files={name: file_digest(request.out / name) for name in files},
        versions=machine.versions(),
        sessions=tuple(asdict(session) for session in record.sessions),
        **summed(made.values(), splits),
    )
    write_card(request.out, card)
    return card


def is_held_out(what: str, share: float, seed: int) -> bool:
    """Whether a question or document is kept from training: the same at every size of a set."""
    # Not hashed as `sampling.draw_sample` does: the first that it draws would all be held out.
    whole = hashlib.sha256(f"held out\n{seed}\n{what}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(whole[:8], "big") < share * 2**64


def told_apart_by(item: HasId) -> str:
    """A question by its words, since data sets have some twice under several ids."""
    return " ".join(item.text.casefold().split()) if isinstance(item, Question) else item.id


def _shared_gold(train: Sequence[HasId], held_out: Sequence[HasId]) -> dict[str, int]:
    """How many questions that are held out have a gold document of one that is not."""
    known = {id_ for each in train if isinstance(each, Question) for id_ in each.gold}
    golds = [set(each.gold) for each in held_out if isinstance(each, Question) and each.gold]
    if not golds:
        return {}
    shared = sum(not known.isdisjoint(gold) for gold in golds)
    return {
        "held-out questions with gold documents": len(golds),
        "of them with one that a training question has too": shared,
    }


def _shared_documents(train: Sequence[Sample], held_out: Sequence[Sample]) -> dict[str, int]:
    """How many samples that are held out show a document which a training sample shows too."""
    shows = [shown for sample in held_out if (shown := _shown_to(sample))]
    if not shows:
        return {}
    known = set(map(_shown_to, train))
    return {
        "held-out samples for a question and a document": len(shows),
        "of them over one that a training sample of the task is over too": sum(
            shown in known for shown in shows
        ),
    }


def _shown_to(sample: Sample) -> tuple[str, str] | None:
    """The task, and the document that a question was asked over, if it was over one."""
    if "question" not in sample.meta or "document" not in sample.meta:
        return None
    return sample.task, str(sample.meta["document"])


def _sources(request: Curation) -> dict[str, str]:
    named = (
        ("questions", request.questions),
        ("library", request.library),
        ("corpus", request.corpus),
    )
    return {what: str(path) for what, path in named if path is not None}


# What the work on each question or document stands on, and how it is carried out.


@dataclass
class CurationContext:
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
    in_view: CorpusResolver | None = None
    library: AsyncLibrary | None = None
    embedder: Embedder | None = None
    reranker: Reranker | None = None
    judged_by: ChatModel | None = None
    kept: KeyValueStore = field(default_factory=MemoryStore)

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
        async with self.in_view.open_sources(self.dataset, question) as sources:
            yield sources

    def run(self, sources: Sources) -> Run:
        """A run whose models are the teacher, with a meter of its own, paid from the budget."""
        run = Run(
            sources,
            self.models,
            self.spending.meter(),
            reranker=self.reranker,
            embedder=self.embedder,
            store=self.kept,
        )
        run.tokens = SharedTokenBudget(self.spending, run.meter)
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
        if isinstance(run.tokens, SharedTokenBudget) and run.tokens.refused is not None:
            raise run.tokens.refused
        return run.meter.report().to_json()

    async def documents(self) -> list[Document]:
        """At most `limit` of the documents there are, drawn by seed and id as questions are.

        Raises:
            NoDocuments: there are none.
            ColligateError: they cannot be read.
        """
        limit, seed = self.request.limit, self.request.seed
        if self.library is not None:
            infos = draw_sample(await self.library.documents(), limit, seed)
            found = [await self.library.document(info.id) for info in infos]
        else:
            found = await in_thread(lambda: draw_sample(self._every_document(), limit, seed))
        if not found:
            raise NoDocuments("there are no documents", "", "name a --library or a --corpus")
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


__all__ = ["Curation", "CurationContext", "opened"]

INDEXES = "corpus"
"""Where a corpus is indexed, below the folder of samples."""


@dataclass(frozen=True)
class Curation:
    """What is to be curated, and into which folder.

    Questions are asked over a `library`, else over a `corpus` (passages, or a folder of
    documents; those of the questions that name documents of it over these), else over the
    documents that come with each. The reader that `named` names is the teacher, in every role
    but the judge's. `tasks` are names, without any all of the system's; `limit` is how many
    questions or documents, None all. `held_out` is the share of them that is kept from training.
    `max_tokens_total` bounds what this process spends, `timeout` the seconds of each item.
    `settings` are parameters of the system as texts such as "k=3". `arguments` are kept on
    record as they are.
    """

    out: Path
    questions: Path | None = None
    format: str = "auto"
    library: Path | None = None
    corpus: Path | None = None
    named: Named = field(default_factory=Named)
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
        if self.library is not None and self.corpus is not None:
            raise UsageError("a library and a corpus exclude each other", hint="name one of them")
        if not 0 <= self.held_out < 1:
            raise UsageError(
                f"cannot hold out {self.held_out}", "it is no share", "name one such as 0.1"
            )
        require_min(self, limit=1, concurrency=1, max_tokens_total=1, timeout=0.001)


@asynccontextmanager
async def opened(
    request: Curation,
    on_event: Listener,
    *,
    system: str,
    needs: Needs,
    tasks: Sequence[str],
    made_by: Sequence[type] = (),
    settings: Mapping[str, Any] | None = None,
) -> AsyncIterator[CurationContext]:
    """The workshop of a curation, its folder held and its models open until the end.

    `needs` are held against the teacher, and say whether documents are read and searched at all;
    where nothing is required no teacher is opened.
    `made_by` are classes whose modules write prompts (those of `colligate.evidence` count
    anyway), `settings` what the system is set up with: both belong to the identity.

    Raises:
        UsageError: the request is wrong, or another process has the folder.
        MissingPath, FaultyRecord: questions, library or corpus are not there, or wrong.
        UnknownModel, ModelError: a model cannot be opened, or lacks what is needed.
        LibraryError: the library cannot be opened.
    """
    if needs.required:
        _hold_to_a_teacher(request.named)
    trace = Trace([on_event], keep=False)
    asked = await in_thread(_questions, request, needs)
    spending = Spending(request.max_tokens_total)
    async with AsyncExitStack() as stack:
        stack.enter_context(held_rows(request.out))
        session = await stack.enter_async_context(request.named.session())
        models: dict[Role, ChatModel] = {}
        if needs.required:
            models = await session.open_models(trace, [Role.READER, Role.JUDGE])
        judge = models.pop(Role.JUDGE, None)
        for line in await session.check(system, needs, models) if models else ():
            trace.emit(Noted(line, warning=True))
        embedder = await session.open_embedder(trace) if needs.searches else None
        reranker = await session.open_reranker(models, trace) if needs.searches and models else None
        records = await records_of(
            models if judge is None else {**models, Role.JUDGE: judge}, embedder, reranker
        )
        library, in_view, dataset = None, None, _dataset(request)
        if request.library is not None:
            library = await _library(request.library, embedder, needs, stack, trace)
        else:
            in_view = CorpusResolver(Path(), request.out / INDEXES, embedder, trace)
            await stack.enter_async_context(in_view)
            if needs.reads:
                asked = [await in_view.resolve(dataset, question) for question in asked]
        identity = {
            "system": system,
            "tasks": sorted(tasks),
            "settings": to_plain(settings or {}),
            "seed": request.seed,
            "models": {_CALLED.get(role, role): asdict(each) for role, each in records.items()},
            "data": await _digests(request, library),
            "prompts": await in_thread(prompt_digests, made_by),
        }
        yield CurationContext(
            request,
            system,
            tuple(asked),
            identity,
            trace,
            models,
            spending,
            dataset,
            in_view=in_view,
            library=library,
            embedder=embedder,
            reranker=reranker,
            judged_by=judge,
        )


_CALLED = {Role.READER.value: "teacher"}


def _hold_to_a_teacher(named: Named) -> None:
    """See to it that there is one: what is learnt from is nothing to be chosen by default.

    Raises:
        UsageError: none is named.
    """
    if named.models.get(Role.READER) is None and named.settings.reader is None:
        why = "the samples are made of what it says"
        raise UsageError("no teacher is named", why, "give --teacher MODEL")


def _questions(request: Curation, needs: Needs) -> list[Question]:
    """The questions that are asked; none where no file is named. Blocks.

    Raises:
        MissingPath, FaultyRecord, UsageError: they cannot be read, or there is nothing to read.
    """
    for path in (request.library, request.corpus):
        if path is not None and not path.exists():
            raise MissingPath(f"there is no {path}", "", "check the path")
    if request.corpus is not None and request.out.resolve().is_relative_to(
        request.corpus.resolve()
    ):
        why = "what is written there would be among the documents"
        raise UsageError(f"{request.out} lies in {request.corpus}", why, "name a folder outside it")
    if request.questions is None:
        return []
    questions = read_questions(request.questions, request.format)
    asked = draw_sample(questions, request.limit, request.seed)
    if not asked:
        raise UsageError(f"{request.questions} holds no questions")
    if needs.reads and request.library is None and request.corpus is None:
        bare = next((question for question in asked if not question.documents), None)
        if bare is not None:
            why = f"question {bare.id} has no documents"
            raise UsageError("there is nothing to read", why, "name a --library or a --corpus")
    return asked


def _dataset(request: Curation) -> Dataset:
    """The request as a suite would say it."""
    file = "" if request.questions is None else str(request.questions.absolute())
    if request.corpus is None:
        return Dataset("questions", file, over="candidates")
    return Dataset("questions", file, over="documents", corpus=str(request.corpus.absolute()))


async def _library(
    path: Path, embedder: Embedder | None, needs: Needs, stack: AsyncExitStack, trace: Trace
) -> AsyncLibrary:
    """The library of a folder, indexed where it is to be searched.

    Raises:
        NoDocuments: it is empty.
        LibraryError: it cannot be opened.
    """
    library = AsyncLibrary(path) if embedder is None else AsyncLibrary(path, embedder=embedder)
    stack.push_async_callback(library.close)
    if not await library.documents():
        raise NoDocuments("there is nothing to ask", f"the library {path} is empty")
    if needs.searches:
        await library.index_pending(on_progress=report_ingestion(trace))
    return library


async def _digests(request: Curation, library: AsyncLibrary | None) -> dict[str, str]:
    """What tells the sources apart from others of their names."""
    found = {}
    if request.questions is not None:
        found["questions"] = await in_thread(path_digest, request.questions)
    if request.corpus is not None:
        found["corpus"] = await in_thread(path_digest, request.corpus)
    if library is not None:
        every = sorted(f"{info.id}\0{info.characters}" for info in await library.documents())
        whole = "\n".join(every).encode("utf-8", "surrogatepass")
        found["library"] = hashlib.sha256(whole).hexdigest()
    return found
