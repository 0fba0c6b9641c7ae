"""What a curation is asked for, and what its work stands on: models, questions, documents."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from colligate.errors import MissingPath, NoDocuments, UsageError
from colligate.evaluation.cast import Named, embedder_of, records_of, reranker_of
from colligate.evaluation.datasets.formats import read_questions
from colligate.evaluation.datasets.sampling import some
from colligate.evaluation.identity import path_digest, prompt_digests
from colligate.evaluation.inview import InView
from colligate.evaluation.question import Question
from colligate.evaluation.spending import Spending
from colligate.evaluation.suite import Dataset
from colligate.ingesting import ingestion_listener
from colligate.library.blocking import in_thread
from colligate.library.library import Library
from colligate.models import ChatModel, Embedder, Role
from colligate.opening import Opened, meet
from colligate.strategies.at_least import at_least
from colligate.strategies.strategy import Needs
from colligate.strategies.trace import Listener, Noted, Trace, plain
from colligate.training.curating import held
from colligate.training.workshop import Workshop

__all__ = ["Curation", "Workshop", "opened"]

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
            raise UsageError("a library and a corpus exclude each other", mend="name one of them")
        if not 0 <= self.held_out < 1:
            raise UsageError(
                f"cannot hold out {self.held_out}", "it is no share", "name one such as 0.1"
            )
        at_least(self, limit=1, concurrency=1, max_tokens_total=1, timeout=0.001)


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
) -> AsyncIterator[Workshop]:
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
        stack.enter_context(held(request.out))
        opening = Opened()
        stack.push_async_callback(opening.aclose)
        models: dict[Role, ChatModel] = {}
        if needs.required:
            models = await _models(request.named, opening, trace)
        judge = models.pop(Role.JUDGE, None)
        for line in await meet(system, needs, models, opening) if models else ():
            trace.emit(Noted(line, warning=True))
        embedder = await embedder_of(request.named, needs.searches, opening, trace)
        reranker = await reranker_of(request.named, opening, embedder, models, trace)
        records = await records_of(
            models if judge is None else {**models, Role.JUDGE: judge}, embedder, reranker
        )
        library, in_view, dataset = None, None, _dataset(request)
        if request.library is not None:
            library = await _library(request.library, embedder, needs, stack, trace)
        else:
            in_view = InView(Path(), request.out / INDEXES, embedder, trace)
            await stack.enter_async_context(in_view)
            if needs.reads:
                asked = [await in_view.named(dataset, question) for question in asked]
        identity = {
            "system": system,
            "tasks": sorted(tasks),
            "settings": plain(settings or {}),
            "seed": request.seed,
            "models": {_CALLED.get(role, role): asdict(each) for role, each in records.items()},
            "data": await _digests(request, library),
            "prompts": await in_thread(prompt_digests, made_by),
        }
        yield Workshop(
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
    asked = some(questions, request.limit, request.seed)
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


async def _models(named: Named, opening: Opened, trace: Trace) -> dict[Role, ChatModel]:
    """The teacher, who fills every role, and the judge where one is named."""
    settings = replace(named.settings, worker=None, scorer=None)
    models = await opening.by_role(named.models, settings, trace)
    return {role: models[role] for role in (Role.READER, Role.JUDGE) if role in models}


async def _library(
    path: Path, embedder: Embedder | None, needs: Needs, stack: AsyncExitStack, trace: Trace
) -> Library:
    """The library of a folder, indexed where it is to be searched.

    Raises:
        NoDocuments: it is empty.
        LibraryError: it cannot be opened.
    """
    library = Library(path) if embedder is None else Library(path, embedder=embedder)
    stack.push_async_callback(library.close)
    if not await library.documents():
        raise NoDocuments("there is nothing to ask", f"the library {path} is empty")
    if needs.searches:
        await library.index_pending(on_progress=ingestion_listener(trace))
    return library


async def _digests(request: Curation, library: Library | None) -> dict[str, str]:
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
