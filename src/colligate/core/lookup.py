"""Lookup: what methods that ask in a loop share: searches, steps that may fail, the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import BaseModel

from colligate.core.answer import Answer
from colligate.core.apart import WayOfReading, read_ranked
from colligate.core.citing import Evidence, Stated
from colligate.core.compress import CompressedPassage
from colligate.core.events import Event, pluralize
from colligate.core.fit import reserve_reading
from colligate.core.reader import FORMS, Form, fit_reader, read, reader_messages
from colligate.core.run import Run
from colligate.documents import Hit, Passage, Span
from colligate.errors import BudgetExceeded, MalformedOutput, MissingCapability, ModelError
from colligate.library.sources import SearchMode
from colligate.models import Message, Role

T = TypeVar("T", bound=BaseModel)

SourcePassage = tuple[Passage, Evidence]
"""A passage for the reader and the reason why it is shown."""

_LONGEST_QUERY = 60  # characters of one that a reason repeats


@dataclass
class Lookup:
    """The passages that searches found, search by search, in their order.

    Each search returns `k` passages, with a reranker the best of `pool`.
    """

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
        by_search = ([hit.passage for hit in hits] for _, hits in reversed(self.searches))
        return list(dict.fromkeys(passage for found in by_search for passage in found))

    def of(self, passages: Sequence[Passage]) -> list[SourcePassage]:
        """Return these passages, each with the search that found it first."""
        why: dict[Passage, Evidence] = {}
        for query, hits in self.searches:
            short = query if len(query) <= _LONGEST_QUERY else f"{query[:_LONGEST_QUERY]}…"
            for rank, hit in enumerate(hits, 1):
                reason = f"rank {rank} of the search for “{short}”"
                why.setdefault(hit.passage, Evidence(hit.passage.span, hit.score, reason))
        return [(passage, why[passage]) for passage in passages]

    def by_turns(self, most: int) -> list[SourcePassage]:
        """Return the `most` best: the first of every search before the second of any, each once."""
        turns = max((len(hits) for _, hits in self.searches), default=0)
        ranked = [
            hits[rank].passage
            for rank in range(turns)
            for _, hits in self.searches
            if rank < len(hits)
        ]
        return self.of(list(dict.fromkeys(ranked))[:most])


@contextmanager
def reserve_for_answer(run: Run, known: Callable[[], object]) -> Iterator[None]:
    """Reserve a part of the token budget for the answer while the steps before it run.

    If the budget or a model that fails ends the steps and something is `known`, the run continues
    with the answer and a warning.

    Raises:
        BudgetExceeded: the budget is spent, and nothing is known.
        ModelError: a model failed, and nothing is known; or it lacks what a step must have.
    """
    with reserve_reading(run):
        try:
            yield
        except (BudgetExceeded, ModelError) as error:
            if isinstance(error, MissingCapability) or not known():
                raise
            budget = isinstance(error, BudgetExceeded)
            why = "the token budget ended the search early" if budget else str(error)
            run.warn(f"{why}: the answer uses what was found until then")


async def try_structured(
    messages: Sequence[Message],
    schema: type[T],
    run: Run,
    *,
    max_tokens: int,
    warning: str,
    role: Role = Role.READER,
) -> T | None:
    """Ask for a reply of this schema; if none can be read, warn and return None."""
    try:
        return (await run.structured(messages, schema, role=role, max_tokens=max_tokens)).value
    except MalformedOutput as error:
        run.warn(f"{warning}: {error.what}")
        return None


def find_grounds(statements: Sequence[Stated], passages: Sequence[Passage]) -> list[Passage]:
    """Return the passages that hold a place of one of the statements, in their order."""
    spans = [place.span for each in statements for place in each.places]
    return [each for each in passages if any(each.span.contains(span) for span in spans)]


async def read_unseen(
    answer: Answer,
    hits: Sequence[Hit],
    seen: Sequence[Passage],
    run: Run,
    form: Form,
    reading: WayOfReading,
    *,
    which: str = "the passages of the search are read too",
    why: str = "of the search, read last",
) -> Answer:
    """Return the answer; if it is not found, one from the passages that were not read.

    It is the last resort of methods that leave out what a search finds, or parts of passages. Of
    a passage among those `seen` all must have been shown. `which` is said to the user, `why` of
    the evidence.
    """
    rest = [
        hit
        for hit in hits
        if hit.passage.text.strip() and not any(_shows(each, hit.passage) for each in seen)
    ]
    if answer.found or not rest:
        return answer
    run.warn(f"what was read does not hold the answer: {which}")
    again = await read_ranked(
        answer.question,
        rest,
        run,
        strategy=answer.strategy,
        why=why,
        form=form,
        reading=reading,
    )
    return replace(again, evidence=(*answer.evidence, *again.evidence))


def _shows(seen: Passage, passage: Passage) -> bool:
    """Return whether all of a passage is in one that was seen, which may be shortened."""
    return seen.span.contains(passage.span) and passage.text.strip() in seen.text


@dataclass(frozen=True)
class Shortened(Event):
    """Passages were shortened: what is left of each, and its share of the passage's characters."""

    spans: tuple[Span, ...]
    texts: tuple[str, ...]
    shares: tuple[float, ...]

    def line(self) -> str:
        return f"shortened {pluralize(len(self.spans), 'passage')}"


async def read_shortened(
    question: str,
    passages: Sequence[CompressedPassage],
    scores: Sequence[float],
    run: Run,
    *,
    strategy: str,
    form: Form = Form.SHORT,
    whole: Sequence[Passage] = (),
) -> Answer:
    """Read compressed passages in the order given; empty ones are left out.

    The evidence is each passage whole with the share that was shown: a compressor keeps hundreds
    of stretches. If they do not hold the answer, those of `whole` that were cut are read.
    """
    left = [(each, score) for each, score in zip(passages, scores, strict=True) if each.kept]
    if passages and not left:
        run.warn("the compressor kept nothing of the passages: let it drop less")
    run.emit(
        Shortened(
            tuple(each.span for each, _ in left),
            tuple(each.text for each, _ in left),
            tuple(each.share for each, _ in left),
        )
    )
    shown = await fit_reader(question, [each for each, _ in left], run, form)
    evidence = [
        Evidence(each.span, score, f"{each.share:.0%} of its characters were shown")
        for each, score in sorted(left[: len(shown)], key=lambda pair: -pair[1])
    ]
    answer = await read(question, shown, run, strategy=strategy, evidence=evidence, form=form)
    return await read_cut(answer, whole, shown, run, form)


async def read_cut(
    answer: Answer, whole: Sequence[Passage], shown: Sequence[Passage], run: Run, form: Form
) -> Answer:
    """Return the answer; if it is not found, one from whole passages that were shown cut."""
    hits = [Hit(passage, 0.0) for passage in whole]
    which, why = "the passages are read again, whole", "whole, read last"
    return await read_unseen(answer, hits, shown, run, form, "together", which=which, why=why)


async def answer_from(
    question: str,
    sources: Sequence[SourcePassage],
    run: Run,
    *,
    strategy: str,
    form: Form,
    notes: str = "",
    known: Sequence[Stated] = (),
) -> Answer:
    """Let the reader answer from these passages in their order; `notes` as in `reader_messages`,
    `known` as in `read`.

    Notes that leave no room for a single passage are left out, with a warning.
    """
    passages = [passage for passage, _ in sources]

    def messages(passages: Sequence[Passage]) -> list[Message]:
        return reader_messages(question, passages, form, notes=notes)

    wanted, first = FORMS[form], passages[:1]
    room = await run.room(
        Role.READER, messages(first), wanted.tokens, schema=wanted.reply, last=True
    )
    if notes and room is not None and room < 0:
        run.warn("the notes leave no room for a passage and are left out")
        notes = ""
    passages = await fit_reader(question, passages, run, form, messages=messages)
    return await read(
        question,
        passages,
        run,
        strategy=strategy,
        evidence=[evidence for _, evidence in sources[: len(passages)]],
        form=form,
        messages=messages,
        known=known,
    )
