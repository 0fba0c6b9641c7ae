"""The run: what a strategy is given, and its only way to documents and models.

Every search and every model call of a strategy goes through its `Run`, which checks the model's
window and the token budget before the call, and records it in the meter and in the trace.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from cachetools import LRUCache
from pydantic import BaseModel

from colligate.core.answer import Answer, Claim, Evidence, Form, Stated, Verdict
from colligate.core.budget import TokenBudget, require_room
from colligate.core.events import Asked, Asking, Event, Noted, Opened, Trace, Writing
from colligate.core.scoring import Scoring
from colligate.core.searching import Searching
from colligate.documents import Document, Hit, Passage, Span
from colligate.documents.languages import language_name
from colligate.documents.tokens import estimate_tokens
from colligate.errors import (
    ContextTooSmall,
    MalformedOutput,
    MissingCapability,
    RequestRefused,
    UsageError,
)
from colligate.library.sources import DocumentInfo, SearchMode, Sources, tell_apart
from colligate.models import (
    AdapterModel,
    Capability,
    ChatModel,
    ChatRequest,
    Completion,
    Message,
    OnToken,
    Reranker,
    Role,
)
from colligate.models.base import TextKind, Vectors
from colligate.models.cache import KeyValueStore, MemoryStore
from colligate.models.metering import Meter
from colligate.models.structured import (
    StructuredReply,
    ask_again,
    json_schema_of,
    parse,
    with_schema,
)

T = TypeVar("T", bound=BaseModel)
Value = TypeVar("Value")
Titled = TypeVar("Titled", Document, Passage)

_CHARACTERS_KEPT = 16_000_000  # of documents, in memory
_SECONDS_BETWEEN_COUNTS = 1.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A passage for the reader, its score, and why it is shown.

    `number` is the number by which notes and prompts of a method name it; 0: its place in the list.
    """

    passage: Passage
    score: float = 0.0
    reason: str = ""
    number: int = 0

    @property
    def span(self) -> Span:
        """The place of the passage."""
        return self.passage.span

    @property
    def evidence(self) -> Evidence:
        """The passage as evidence of the answer."""
        return Evidence(self.passage.span, self.score, self.reason)


@dataclass(frozen=True, slots=True)
class Task:
    """What a strategy asks of the reader; the fields are the parameters of `Run.read`."""

    form: Form = Form.SHORT
    known: tuple[Stated, ...] = ()
    instruction: str = ""
    notes: str = ""


class Reader(Protocol):
    """Answers a question from passages; a session chooses one (`colligate.readers`)."""

    @property
    def name(self) -> str: ...

    async def read(self, question: str, shown: Sequence[Shown], run: Run, task: Task) -> Answer:
        """Return the checked answer; see `Run.read`."""


class Retriever(Protocol):
    """Finds the evidence for a query; a session opens the one named (`colligate.retrievers`).

    It is a frozen dataclass, whose fields are its parameters, with `needs` as a strategy's.
    """

    name: ClassVar[str]

    async def retrieve(
        self, query: str, run: Run, *, k: int, documents: Collection[str] | None = None
    ) -> list[Hit]:
        """Return the `k` best passages, or as many as its own limits allow, best first.

        `run.search` is the engine's own search here. `documents` are those to stay inside.
        """


class Check(Protocol):
    """Judges whether quotes support statements; a session chooses one (`colligate.readers`)."""

    @property
    def name(self) -> str: ...

    async def judge(self, claims: Sequence[Claim], run: Run) -> list[Verdict]:
        """Return a verdict for each claim; a claim that cannot be judged is unclear."""


class Embeds(Protocol):
    """An `Embedder`, or a library, which opens its own at the first call."""

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors: ...


OnText = Callable[[str], None]
Consent = Callable[[str], Awaitable[bool]]
"""Asks a person whether costly work may begin; gets what it takes in one line."""


async def refuse(estimate: str) -> bool:
    """Refuse: nobody can be asked."""
    return False


async def allow(estimate: str) -> bool:
    """Allow it: it was allowed in advance."""
    return True


RISKS = {"careful": 0.1, "balanced": 0.2, "eager": 0.4}


def parse_risk(given: float | str | None) -> float | None:
    """Return the share of the answers given that may be wrong, of a number or a word.

    >>> parse_risk("careful"), parse_risk("0.05")
    (0.1, 0.05)
    """
    if given is None:
        return None
    with suppress(ValueError):
        risk = RISKS.get(str(given)) or float(given)
        if 0 < risk < 1:
            return risk
    why = "it is the share of the answers given that may be wrong, above 0 and below 1"
    hint = f"give a number such as 0.1, or one of {', '.join(RISKS)}"
    raise UsageError(f"no risk {str(given)[:40]!r}", why, hint)


def _recent_documents() -> LRUCache[str, Document]:
    # A document larger than the whole cache is kept alone in it.
    return LRUCache(_CHARACTERS_KEPT, lambda document: min(len(document.text), _CHARACTERS_KEPT))


@dataclass
class Run(Scoring, Searching):
    """One run of one strategy over one question.

    Every call checks the window and the budget first: it raises `ContextTooSmall` or
    `BudgetExceeded` if it does not fit, and `MissingCapability` if the role's model cannot do what
    is asked. `store` outlives the run: it holds what strategies work out about a document for all
    questions. `retriever` finds what `search` returns; a mode is one of the engine's own search.
    `reader` answers from passages, `check` judges what it states; without one nothing is judged.
    `consent` is asked before work that takes many calls. `earlier` are passages that the
    last answer of a conversation rests on: the first search offers them again. In a `live`
    run models stream, and events tell what they write. `foreign` is the language of the
    question if no document is in it: it is searched and read in theirs. `language` is that of the
    question: English, if it is not surely another. `risk` is the share of the answers given that
    may be wrong: less sure ones are left out (`readers.promise`).
    """

    sources: Sources
    models: Mapping[Role, ChatModel]
    meter: Meter
    trace: Trace = field(default_factory=Trace)
    max_tokens: int | None = None
    reranker: Reranker | None = None
    retriever: Retriever | SearchMode | None = None
    reader: Reader | None = None
    check: Check | None = None
    embedder: Embeds | None = None
    store: KeyValueStore = field(default_factory=MemoryStore)
    consent: Consent = refuse
    earlier: tuple[Span, ...] = ()
    live: bool = False
    foreign: str = ""
    language: str = "en"
    risk: float | None = None
    _documents: LRUCache[str, Document] = field(default_factory=_recent_documents, repr=False)
    _folders: dict[str, str] | None = field(default=None, repr=False)
    _named: set[str] = field(default_factory=set, repr=False)
    _outside: dict[str, Document] = field(default_factory=dict, repr=False)
    _found: dict[Any, list[Hit]] = field(default_factory=dict, repr=False)
    _translated: dict[str, str] = field(default_factory=dict, repr=False)
    tokens: TokenBudget = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.tokens = TokenBudget(self.max_tokens, self.meter)

    def model(self, role: Role) -> ChatModel:
        """Return the model of a role; the reader fills roles that have none of their own."""
        return self.models.get(role) or self.models[Role.READER]

    @property
    def reads_alone(self) -> bool:
        """Whether the reader reads passages one by one, as small models need."""
        return getattr(self.reader, "alone", False)

    def key(self, role: Role, kind: str, *parts: Any) -> str:
        """Return the SHA-256 of plain JSON values and of the model that a result depends on."""
        model = self.model(role)
        made = [kind, model.name, str(getattr(model, "version", "")), *parts]
        return hashlib.sha256(json.dumps(made).encode()).hexdigest()

    async def with_adapter(self, role: Role, adapter: str | Path | None) -> Run:
        """Return this run with a LoRA adapter on a role's model; the run itself if it is None.

        Budget, meter and trace are shared. An adapter that does not exist, or was made for another
        model, raises `WeightsUnavailable`.
        """
        if adapter is None:
            return self
        model = self.model(role)
        if Capability.ADAPTERS not in model.capabilities or not isinstance(model, AdapterModel):
            why = f"it is the {role.value} of this run, and {adapter} cannot be put on it"
            hint = "use bundled, gguf:PATH, hf:NAME or openai:MODEL@URL"
            raise MissingCapability(f"{model.name} takes no adapter", why, hint)
        other = copy(self)
        other.models = {**self.models, role: await model.with_adapter(adapter)}
        return other

    def emit(self, event: Event) -> None:
        """Record an event in the trace."""
        self.trace.emit(event)

    def warn(self, text: str) -> None:
        """Record a warning for the person who asks; it reaches `Answer.warnings`."""
        if text not in self.warnings:
            self.emit(Noted(text, warning=True))

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings so far, in order."""
        return tuple(e.text for _, e in self.trace.events if isinstance(e, Noted) and e.warning)

    async def infos(self) -> list[DocumentInfo]:
        """Return the documents in view, as `tell_apart` does."""
        return tell_apart(await self.sources.documents())

    async def _add_folder(self, to: Titled, document_id: str) -> Titled:
        if self._folders is None:  # there may be many documents: only these are kept
            self._folders = {info.id: info.folder for info in await self.infos() if info.folder}
        folder = self._folders.get(document_id)
        return replace(to, folder=folder) if folder else to

    async def document(self, document_id: str) -> Document:
        """Return a document in view; the latest ones are kept in memory."""
        document = self._outside.get(document_id) or self._documents.get(document_id)
        if document is None:
            found = await self.sources.document(document_id)
            document = await self._add_folder(found, document_id)
            self._documents[document_id] = document
        if document_id not in self._named:  # the trace names every document that was read
            self._named.add(document_id)
            self.emit(Opened(document_id))
        return document

    def adopt(self, document: Document) -> None:
        """Add a document from outside the sources, so that passages of it can be cited."""
        self._outside.setdefault(document.id, document)

    async def documents_of(self, passages: Sequence[Passage]) -> dict[str, Document]:
        """Return the documents of these passages by id."""
        return {p.document_id: await self.document(p.document_id) for p in passages}

    async def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> Vectors:
        """Return the vectors of texts, [texts, dimension], each of unit length."""
        if self.embedder is None:
            what = "the run has no embedder"
            raise MissingCapability(what, "texts are compared by meaning", "name an --embedder")
        return await self.embedder.embed(texts, kind=kind)

    async def read(
        self,
        question: str,
        shown: Sequence[Shown],
        *,
        form: Form = Form.SHORT,
        known: Sequence[Stated] = (),
        instruction: str = "",
        notes: str = "",
    ) -> Answer:
        """Return the reader's checked answer from passages, the best or first ones first.

        What does not fit the reader's window is left out, the last first, with a warning. The
        answer is found if a statement of it has a located quote. `known` are statements that
        earlier steps verified: they are the answer if the reader fails or claims what cannot be
        cited. `instruction` is a method's own task for the reader, without the form of the reply;
        `notes` are its own text between passages and question, escaped and in tags. A `foreign`
        question is shown in the documents' language too, and answered in its own. ColligateError if
        the reader fails before any of its calls was paid for, and nothing is known.
        """
        if self.reader is None:
            raise UsageError("the run has no reader", hint="Run(..., reader=QuotingReader())")
        task = Task(form, tuple(known), instruction, notes)
        asked = question
        if self.foreign:
            language = language_name(self.foreign)
            asked = await self.translate(question)
            asked += f"\n(It was asked in {language}: {question} Answer in {language}.)"
        with self.meter.step("answer"):
            answer = await self.reader.read(asked, shown, self, task)
        return replace(answer, question=question)

    async def chat(
        self,
        messages: Sequence[Message],
        *,
        role: Role = Role.READER,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
        temperature: float = 0.0,
        seed: int | None = None,
    ) -> Completion:
        """Make one chat call, greedy by default, and return any reply.

        A model that can be constrained follows `schema`; use `structured` if the reply must match.
        """
        request = ChatRequest(
            messages, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=schema
        )
        return await self._ask(role, request)

    async def _ask(
        self, role: Role, request: ChatRequest, on_text: OnText | None = None
    ) -> Completion:
        model, messages = self.model(role), request.messages
        prompt = await model.count_prompt(messages)
        require_room(model, prompt, request.max_tokens)
        async with self.tokens.hold(prompt + request.max_tokens):
            self.emit(Asking(role, model.name, "chat", prompt))
            began = time.perf_counter()
            watched = (self._count_reply(role, model.name, on_text),) if self.live else ()
            completion = await model.chat(request, *watched)
            seconds = time.perf_counter() - began
            usage = completion.usage
            self.meter.chat(role, model.name, usage, seconds=seconds, cached=completion.cached)
        for warning in completion.warnings:
            self.warn(warning)
        self.emit(Asked(role, model.name, tuple(messages), completion.text, usage, seconds))
        return completion

    async def structured(
        self,
        messages: Sequence[Message],
        schema: type[T],
        *,
        role: Role = Role.READER,
        max_tokens: int,
        retries: int = 1,
        on_text: OnText | None = None,
    ) -> StructuredReply[T]:
        """Make a chat call whose reply must match `schema`, and `retries` more if it is unusable.

        A reply that does not match is mended where that is possible. After one that was cut the
        next may have twice the tokens, as far as window and budget go. A model that cannot be
        constrained reads the schema in the prompt. If no reply can be used it raises
        `MalformedOutput`. In a `live` run `on_text` gets each reply as far as it is written, and
        an empty text when one begins.
        """
        json_schema = json_schema_of(schema)
        constrained = Capability.STRUCTURED in self.model(role).capabilities
        asked = messages if constrained else with_schema(messages, json_schema)
        prompt, tokens, problem = asked, max_tokens, ""
        held: Mapping[str, Any] | None = json_schema
        completions: list[Completion] = []
        while len(completions) <= retries:
            try:
                request = ChatRequest(prompt, max_tokens=tokens, schema=held)
                reply = await self._ask(role, request, on_text)
            except RequestRefused as error:  # no decoder can enforce every schema
                if held is None or completions:
                    raise
                self.warn(
                    f"{self.model(role).name} cannot be constrained to {schema.__name__} "
                    f"({error.why or error.what}); the prompt alone asked for it"
                )
                prompt = asked = with_schema(messages, json_schema)
                held = None
                continue
            except ContextTooSmall:
                if not completions:
                    raise
                break  # the prompt fits, but not together with the failed answer
            completions.append(reply)
            cut = reply.finish_reason == "length"
            try:
                value, how = parse(reply.text, schema)
            except ValueError as error:
                problem = f"it was cut at {tokens} tokens; {error}" if cut else str(error)
                prompt = ask_again(asked, reply.text, problem)
                if cut:
                    most = await self.room(role, prompt, 0, last=True)
                    tokens = max(tokens, min(2 * tokens, 2 * tokens if most is None else most))
                continue
            if cut and how == "repaired":
                self.warn(
                    f"{reply.model}'s answer was cut at {tokens} tokens: "
                    "what it has up to there is used"
                )
            return StructuredReply(value, tuple(completions))
        what = f"{reply.model} gives no valid {schema.__name__}"
        why = f"{len(completions)} answers, the last: {problem}"
        malformed = MalformedOutput(what, why, "use a larger model")
        malformed.reply = reply.text
        raise malformed

    def _count_reply(self, role: Role, model: str, on_text: OnText | None) -> OnToken:
        """Return what counts the pieces of a reply; an event says now and then how much it is."""
        text, due = "", time.monotonic() + _SECONDS_BETWEEN_COUNTS
        if on_text is not None:
            on_text(text)

        def count(piece: str) -> None:
            nonlocal text, due
            text += piece
            if on_text is not None:
                on_text(text)
            if (now := time.monotonic()) >= due:
                due = now + _SECONDS_BETWEEN_COUNTS
                self.emit(Writing(role, model, estimate_tokens(text)))

        return count

    async def room(
        self,
        role: Role,
        messages: Sequence[Message],
        max_tokens: int,
        *,
        schema: type[BaseModel] | None = None,
        last: bool = False,
    ) -> int | None:
        """Return the tokens left in the model's window after a prompt and its reply.

        None means that the window is unknown. With `schema` the prompt is counted as `structured`
        sends it. `last` counts what is left of the token budget too: no step comes after this one.
        Exact if the model's tokenizer is at hand, otherwise an estimate.
        """
        model = self.model(role)
        limits = [model.context_tokens, self.tokens.left if last else None]
        known = [limit for limit in limits if limit is not None]
        if not known:
            return None
        if schema is not None and Capability.STRUCTURED not in model.capabilities:
            messages = with_schema(messages, json_schema_of(schema))
        return min(known) - await model.count_prompt(messages) - max_tokens


def show_ranked(hits: Sequence[Hit], why: str = "of the search") -> list[Shown]:
    """Return hits for the reader; `why` follows the rank in the reason."""
    return [Shown(hit.passage, hit.score, f"rank {at} {why}") for at, hit in enumerate(hits, 1)]
