"""What loops that look things up share: what they found, room for a prompt, the last answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from colligate.core.answer import Answer
from colligate.core.citing import Evidence
from colligate.core.reader import FORMS, Form, fit_reader, read, reader_messages
from colligate.core.run import Run
from colligate.documents import Hit, Passage
from colligate.errors import BudgetExceeded
from colligate.library.sources import SearchMode
from colligate.models import Message, Role

FOR_THE_ANSWER = 6000
"""Tokens of a budget that the steps before the answer leave, or half of a small one."""

SourcePassage = tuple[Passage, Evidence]
"""A passage for the reader, and why it is shown."""

_LONGEST_QUERY = 60  # characters of one that a reason repeats


@dataclass
class Lookup:
    """The passages that searches found, search by search, in their order.

    `k` of each, the best of `pool` where there is a reranker.
    """

    run: Run
    k: int
    pool: int
    mode: SearchMode
    searches: list[tuple[str, list[Hit]]] = field(default_factory=list)

    async def search(self, query: str) -> list[Passage]:
        """The passages of one more search."""
        hits = await self.run.search(query, k=self.k, pool=self.pool, mode=self.mode)
        self.searches.append((query, hits))
        return [hit.passage for hit in hits]

    async def possible(self) -> bool:
        """Whether there is anything to search."""
        return bool(await self.run.sources.documents())

    @property
    def passages(self) -> list[Passage]:
        """All of them once, in the order they were found."""
        return list(dict.fromkeys(hit.passage for _, hits in self.searches for hit in hits))

    @property
    def latest_first(self) -> list[Passage]:
        """The same, the last search's first: what does not fit a prompt is then what is oldest."""
        by_search = ([hit.passage for hit in hits] for _, hits in reversed(self.searches))
        return list(dict.fromkeys(passage for found in by_search for passage in found))

    def of(self, passages: Sequence[Passage]) -> list[SourcePassage]:
        """These passages, each with the search that found it first."""
        why: dict[Passage, Evidence] = {}
        for query, hits in self.searches:
            short = query if len(query) <= _LONGEST_QUERY else f"{query[:_LONGEST_QUERY]}…"
            for rank, hit in enumerate(hits, 1):
                reason = f"rank {rank} of the search for “{short}”"
                why.setdefault(hit.passage, Evidence(hit.passage.span, hit.score, reason))
        return [(passage, why[passage]) for passage in passages]

    def by_turns(self, most: int) -> list[SourcePassage]:
        """The `most` best: the first of every search before the second of any, each once."""
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
    """Steps before the answer: part of the token budget is kept for it.

    Where the budget ends them and something is `known`, the answer is given from that, and the
    warnings say so.

    Raises:
        BudgetExceeded: nothing is known.
    """
    left = run.tokens.left
    with run.tokens.reserve(0 if left is None else min(FOR_THE_ANSWER, left // 2)):
        try:
            yield
        except BudgetExceeded:
            if not known():
                raise
            run.warn("the token budget ended the steps before the answer: it rests on those made")


async def answer_from(
    question: str,
    sources: Sequence[SourcePassage],
    run: Run,
    *,
    strategy: str,
    form: Form,
    notes: str = "",
) -> Answer:
    """The reader's answer from these passages in their order; `notes` as in `reader_messages`.

    Notes that leave no room for a single passage are left out, which is said.
    """
    passages = [passage for passage, _ in sources]

    def messages(passages: Sequence[Passage]) -> list[Message]:
        return reader_messages(question, passages, form, notes=notes)

    wanted, first = FORMS[form], passages[:1]
    room = await run.room(Role.READER, messages(first), wanted.tokens, schema=wanted.reply)
    if notes and room is not None and room < 0:
        run.warn("the notes made on the way do not fit the reader's window: it reads without them")
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
    )
