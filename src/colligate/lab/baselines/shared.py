"""What baselines share: their kinds, what searches found, shortened passages, steps and replies."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from colligate.core.answer import Answer, Form, Stated
from colligate.core.events import Assembled, Pruned, pluralize
from colligate.core.fit import Room, fit_window
from colligate.core.parameters import require_min
from colligate.core.prompts import build_messages, render_passages, render_question
from colligate.core.relevance import Relevance, score_relevance
from colligate.core.run import Run, Shown, show_ranked
from colligate.core.strategy import Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Document, Hit, Passage, Span
from colligate.documents.chunking import Chunker
from colligate.documents.compress import CompressedPassage, compress
from colligate.errors import ModelError, WeightsUnavailable
from colligate.library.sources import SearchMode
from colligate.models import Capability, Message, Role, Usage
from colligate.readers.lookup import reserve_for_answer, try_structured

S = TypeVar("S", bound=BaseModel)


@dataclass(frozen=True)
class Baseline:
    """A published method to compare with; its numbers are 1, or 0, or more, but for `LEAST`."""

    LEAST: ClassVar[Mapping[str, float]] = {}
    needs: ClassVar[Needs] = Needs()

    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        usual = {"int": 1, "float": 0}
        kinds = {each.name: str(each.type).removesuffix(" | None") for each in fields(self)}
        least = {name: usual[kind] for name, kind in kinds.items() if kind in usual}
        require_min(self, **{**least, **self.LEAST})


@dataclass(frozen=True)
class SearchMethod(Baseline):
    """A method that searches."""

    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense"}

    mode: SearchMode = SearchMode.HYBRID  # the paper: dense

    async def read_whole(self, question: str, run: Run, most: int) -> list[Document]:
        """Return the documents in view in their order; of more than `most` the best first."""
        found = await choose_units(question, run, "documents", most, pool=most, mode=self.mode)
        return [await run.document(passage.document_id) for passage in found[1]]

    async def cut_whole(
        self, question: str, run: Run, chunker: Chunker, most: int
    ) -> list[Passage]:
        """Return the chunks of the documents in view, or of the best `most` of them."""
        whole = await self.read_whole(question, run, most)
        return await asyncio.to_thread(
            lambda: [each.passage(span) for each in whole for span in chunker(each)]
        )


@dataclass(frozen=True)
class DocumentMethod(SearchMethod):
    """A method that shortens or filters the documents in view, or the passages of a search.

    Attributes:
        documents: documents (or passages, by `units`) that are read, best first
        pool: passages that a search gives to the reranker, if there is one
    """

    documents: int = 20  # N of DuQUAD's Natural Questions
    units: Units = "auto"
    pool: int = 50

    async def choose(self, question: str, run: Run) -> list[Passage]:
        """Return what is read, without blank texts."""
        most, mode = self.documents, self.mode
        found = await choose_units(question, run, self.units, most, pool=self.pool, mode=mode)
        return [passage for passage in found[1] if passage.text.strip()]


@dataclass(frozen=True)
class LikelihoodMethod(DocumentMethod):
    """A method that shortens what is read by the likelihoods of the scorer."""

    needs: ClassVar[Needs] = Needs(required=frozenset({Capability.CHAT, Capability.LIKELIHOOD}))

    async def answer(self, question: str, run: Run) -> Answer:
        """Shorten, read; whole passages if the budget ends the scores."""
        passages = await self.choose(question, run)
        scorer = run.model(Role.SCORER)
        kept = [compress(each, [(0, len(each.text))]) for each in passages]
        scores: Sequence[float] = ()
        with reserve_for_answer(run, lambda: Capability.LIKELIHOOD in scorer.capabilities):
            kept, scores = await self._shorten(question, passages, run)
        return await run.read(question, show_shortened(kept, run, scores), form=self.form)

    async def _shorten(
        self, question: str, passages: Sequence[Passage], run: Run
    ) -> tuple[list[CompressedPassage], Sequence[float]]:
        """Return what is left of the passages, in the order in which it is read, and any scores."""
        raise NotImplementedError


@dataclass(frozen=True)
class ChunkMethod(SearchMethod):
    """A method that cuts documents in its own way, and reads the best chunks.

    Attributes:
        budget: tokens of chunks that are read, best first
        by: what scores the chunks; auto: the first of these that there is
        documents: documents that are cut into chunks, the best by a search
    """

    budget: int | None = 2048  # LongRefiner
    by: Relevance = "auto"
    documents: int = 8  # LongRefiner

    async def read_best(
        self, question: str, chunks: Sequence[Passage], run: Run, most: int | None = None
    ) -> Answer:
        """Answer from the best chunks; from the first if their scores fail after a paid call."""
        try:
            scores = await score_relevance(question, chunks, run, self.by)
        except ModelError as error:
            run.continue_unranked(error)
            scores = [1 / rank for rank in range(1, len(chunks) + 1)]
        shown = await show_best(chunks, scores, run, by="relevance", most=most, budget=self.budget)
        return await run.read(question, shown, form=self.form)


@dataclass(frozen=True)
class LookupMethod(SearchMethod):
    """A method that looks things up by searches of its own.

    Attributes:
        k: passages of each search
        pool: passages that a search gives to the reranker, if there is one
    """

    k: int = 10
    pool: int = 50

    def look_up(self, run: Run) -> Lookup:
        """Return what searches in a run and keeps what was found."""
        return Lookup(run, self.k, self.pool, self.mode)


# Searching in rounds

_LONGEST_QUERY = 60  # characters of one that a reason repeats


@dataclass
class Lookup:
    """What searches found, one by one: `k` passages each, of a reranker the best of `pool`."""

    run: Run
    k: int
    pool: int
    mode: SearchMode
    searches: list[tuple[str, list[Hit]]] = field(default_factory=list)

    async def search(self, query: str) -> list[Passage]:
        """Search once more and return the passages."""
        hits = await self.run.search(query, k=self.k, pool=self.pool, mode=self.mode)
        self.searches.append((query, hits))
        return [hit.passage for hit in hits]

    async def possible(self) -> bool:
        """Return whether there is anything to search."""
        return any(info.passages for info in await self.run.sources.documents())

    @property
    def passages(self) -> list[Passage]:
        """All of them once, in the order they were found."""
        return list(dict.fromkeys(hit.passage for _, hits in self.searches for hit in hits))

    @property
    def latest_first(self) -> list[Passage]:
        """The same, the last search first: a full prompt then lacks the oldest passages."""
        hits = (hit for _, found in reversed(self.searches) for hit in found)
        return list(dict.fromkeys(hit.passage for hit in hits))

    def of(self, passages: Sequence[Passage]) -> list[Shown]:
        """Return these passages, each with the search that found it first."""
        why: dict[Passage, Shown] = {}
        for query, hits in self.searches:
            short = query if len(query) <= _LONGEST_QUERY else f"{query[:_LONGEST_QUERY]}…"
            for rank, hit in enumerate(hits, 1):
                reason = f"rank {rank} of the search for “{short}”"
                why.setdefault(hit.passage, Shown(hit.passage, hit.score, reason))
        return [why[passage] for passage in passages]

    def by_turns(self, most: int) -> list[Shown]:
        """Return the `most` best: the first of every search before the second of any, each once."""
        ranked = [
            (rank, at, hit.passage)
            for at, (_, hits) in enumerate(self.searches)
            for rank, hit in enumerate(hits)
        ]
        ranked.sort(key=lambda each: each[:2])
        return self.of(list(dict.fromkeys(passage for *_, passage in ranked))[:most])


async def show_best(
    passages: Sequence[Passage],
    scores: Sequence[float],
    run: Run,
    *,
    by: str,
    most: int | None = None,
    budget: int | None = None,
) -> list[Shown]:
    """Return the best passages, `most` of them in a `budget` of tokens; `by` names the scores."""
    order = sorted(range(len(passages)), key=lambda place: -scores[place])[:most]
    ranked = [passages[place] for place in order]
    if budget is not None:
        ranked = await fit_budget(ranked, budget, run)
    hits = [Hit(each, scores[place]) for each, place in zip(ranked, order, strict=False)]
    return show_ranked(hits, f"by {by}")


@dataclass(frozen=True)
class Shortened(Assembled):
    """Passages were shortened (the page draws it): what is left of them, as texts and as shares."""

    spans: tuple[Span, ...]
    shares: tuple[float, ...]

    def line(self) -> str:
        return f"shortened {pluralize(len(self.spans), 'passage')}"


def show_shortened(
    passages: Sequence[CompressedPassage], run: Run, scores: Sequence[float] = ()
) -> list[Shown]:
    """Return compressed passages for the reader, without empty ones; the evidence is whole."""
    scored = zip(passages, scores or [1.0] * len(passages), strict=True)
    left = [(each, score) for each, score in scored if each.kept]
    if passages and not left:
        run.warn("the compressor kept nothing of the passages: let it drop less")
    columns = [tuple(getattr(each, name) for each, _ in left) for name in ("text", "span", "share")]
    run.emit(Shortened(*columns))
    return [Shown(each, s, f"{each.share:.0%} of its characters were shown") for each, s in left]


def find_grounds(statements: Sequence[Stated], passages: Sequence[Passage]) -> Iterator[Passage]:
    """Yield the passages that hold a place of one of the statements, in their order."""
    spans = [place.span for each in statements for place in each.places]
    return (each for each in passages if any(each.span.contains(span) for span in spans))


async def fit_budget(ranked: Sequence[Passage], budget: int, run: Run) -> list[Passage]:
    """Return the first passages of at most `budget` tokens; of a first that is longer a part."""
    model = run.model(Role.READER)
    kept: list[Passage] = []
    left = budget
    for passage in ranked:
        tokens = await model.count_tokens(f"{passage.full_title}\n{passage.text}")
        if tokens > left:
            break
        kept.append(passage)
        left -= tokens
    if ranked and not kept and budget > 0:
        kept = await _beginning(ranked[0], budget, run)
    if len(kept) < len(ranked):
        left_out = tuple(passage.span for passage in ranked[len(kept) :])
        run.emit(Pruned(left_out, f"the budget of {budget} tokens holds {len(kept)} passages"))
    return kept


async def _beginning(passage: Passage, budget: int, run: Run) -> list[Passage]:
    model = run.model(Role.READER)
    room = budget - await model.count_tokens(f"{passage.full_title}\n")
    ends = [end for _, end in await model.token_spans(passage.text)]
    if room < 1 or not ends:
        return []
    document = await run.document(passage.document_id)
    start = passage.span.start
    return [document.passage(document.span(start, start + ends[min(room, len(ends)) - 1]))]


def require_weights(name: str | None, strategy: str, kind: str, hint: str) -> str:
    """Return the name of trained weights; WeightsUnavailable if none are named."""
    if name is None:
        raise WeightsUnavailable(f"{strategy} needs a trained {kind}", "none is named", hint)
    return name


@contextmanager
def meter_passes(
    name: str, run: Run, passes: int = 1, usage: Usage | None = None
) -> Iterator[None]:
    """Meter what a trained model of a baseline's own computes meanwhile."""
    began = time.perf_counter()
    yield
    seconds, usage = time.perf_counter() - began, usage or Usage()
    run.meter.scoring(Role.SCORER, name, passes=passes, seconds=seconds, usage=usage)


def require_all(schema: dict[str, Any]) -> None:
    """Ask for all fields of a reply, also those with a default."""
    schema["required"] = list(schema["properties"])


class StepReply(BaseModel):
    """What a model replies in a step. The order of the fields is the order of decoding."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=require_all)


Prompt = Callable[[Sequence[Passage]], list[Message]]


def make_prompt(instruction: str, question: str, *after: str) -> Prompt:
    """Return the prompt that shows passages, the question, and what comes `after` it."""

    def prompt(passages: Sequence[Passage]) -> list[Message]:
        shown = render_passages(passages) if passages else ""
        return build_messages(instruction, shown, render_question(question), *after)

    return prompt


async def fit_prompt(
    passages: Sequence[Passage], prompt: Prompt, run: Run, room: Room
) -> list[Message]:
    """Return the prompt of the first passages that fit the window with their reply."""
    return prompt(await fit_window(passages, prompt, run, room))


async def write_step(
    passages: Sequence[Passage], prompt: Prompt, run: Run, max_tokens: int, role: Role = Role.READER
) -> str:
    """Let the model write, from the first passages that fit."""
    messages = await fit_prompt(passages, prompt, run, Room(max_tokens, role))
    return (await run.chat(messages, role=role, max_tokens=max_tokens)).text


async def ask_step(
    passages: Sequence[Passage],
    prompt: Prompt,
    schema: type[S],
    run: Run,
    *,
    max_tokens: int,
    warning: str,
) -> S | None:
    """Ask for a step's reply, from the first passages that fit; warn where none can be read."""
    messages = await fit_prompt(passages, prompt, run, Room(max_tokens, schema=schema))
    return await try_structured(messages, schema, run, max_tokens=max_tokens, warning=warning)
