"""What several baselines share: documents that are read, the best of what is scored, replies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from pydantic import BaseModel, ConfigDict

from colligate.core.answer import Form, Stated
from colligate.core.events import Pruned
from colligate.core.fit import HasSpan, Room, fit_window
from colligate.core.parameters import require_min
from colligate.core.run import Run, Shown, show_ranked
from colligate.core.strategy import Needs
from colligate.core.units import Units, choose_units
from colligate.documents import Document, Hit, Passage
from colligate.documents.chunking import Chunker
from colligate.errors import WeightsUnavailable
from colligate.lab.baselines.lookup import Lookup
from colligate.library.sources import SearchMode
from colligate.models import Message, Role

T = TypeVar("T", bound=HasSpan)


@dataclass(frozen=True)
class DocumentMethod:
    """A method that shortens or filters the documents in view, or the passages of a search.

    Attributes:
        documents: documents (or passages, by `units`) that are read, best first
        pool: passages that a search gives to the reranker, if there is one
    """

    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense"}

    documents: int = 20  # N of DuQUAD's Natural Questions
    units: Units = "auto"
    pool: int = 50
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, documents=1, pool=1)

    async def choose(self, question: str, run: Run) -> list[Passage]:
        """Return what is read, without blank texts."""
        _, found = await choose_units(
            question, run, self.units, self.documents, pool=self.pool, mode=self.mode
        )
        return [passage for passage in found if passage.text.strip()]


@dataclass(frozen=True)
class LookupMethod:
    """A method that looks things up by searches of its own.

    Attributes:
        k: passages of each search
        pool: passages that a search gives to the reranker, if there is one
    """

    needs: ClassVar[Needs] = Needs()
    PAPER: ClassVar[Mapping[str, str]] = {"mode": "dense"}

    k: int = 10
    pool: int = 50
    mode: SearchMode = SearchMode.HYBRID  # the paper: dense
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, k=1, pool=1)

    def look_up(self, run: Run) -> Lookup:
        """Return what searches in a run and keeps what was found."""
        return Lookup(run, self.k, self.pool, self.mode)


async def show_best(
    passages: Sequence[Passage],
    scores: Sequence[float],
    run: Run,
    *,
    by: str,
    most: int | None = None,
    budget: int | None = None,
) -> list[Shown]:
    """Return passages in the order of their scores; of equal ones the earlier comes first.

    They are at most `most`, with at most `budget` tokens of the reader. `by` names the scores.
    """
    order = sorted(range(len(passages)), key=lambda place: -scores[place])[:most]
    ranked = [passages[place] for place in order]
    if budget is not None:
        ranked = await fit_budget(ranked, budget, run)
    hits = [Hit(each, scores[place]) for each, place in zip(ranked, order, strict=False)]
    return show_ranked(hits, f"by {by}")


async def fit_budget(ranked: Sequence[Passage], budget: int, run: Run) -> list[Passage]:
    """Return the first passages that have at most `budget` tokens together, titles included.

    The first one that does not fit ends the list. If that is the very first, its beginning is
    kept.
    """
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
    """Return the name of trained weights; raise `WeightsUnavailable` if none are named."""
    if name is None:
        raise WeightsUnavailable(f"{strategy} needs a trained {kind}", "none is named", hint)
    return name


def require_all(schema: dict[str, Any]) -> None:
    """Ask for all fields of a reply, also those with a default."""
    schema["required"] = list(schema["properties"])


class StepReply(BaseModel):
    """What a model replies in a step. The order of the fields is the order of decoding."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=require_all)


async def chunk_documents(
    question: str, run: Run, chunker: Chunker, *, documents: int, mode: SearchMode
) -> list[Passage]:
    """Return the chunks of the documents in view, or of the best `documents` of them."""
    whole = await read_whole_documents(question, run, documents, mode)

    def cut() -> list[Passage]:
        return [each.passage(span) for each in whole for span in chunker(each)]

    return await asyncio.to_thread(cut)


async def read_whole_documents(
    question: str, run: Run, most: int, mode: SearchMode
) -> list[Document]:
    """Return the documents in view in their order; of more than `most` the best, best first."""
    _, passages = await choose_units(question, run, "documents", most, pool=most, mode=mode)
    return [await run.document(passage.document_id) for passage in passages]


async def fit_prompt(
    ranked: Sequence[T],
    prompt: Callable[[Sequence[T]], list[Message]],
    run: Run,
    *,
    max_tokens: int,
    role: Role = Role.READER,
    schema: type[BaseModel] | None = None,
) -> list[Message]:
    """Return the prompt of the first items that fit the window, as `fit_window` keeps them."""
    return prompt(await fit_window(ranked, prompt, run, Room(max_tokens, role, schema)))


def find_grounds(statements: Sequence[Stated], passages: Sequence[Passage]) -> Iterator[Passage]:
    """Yield the passages that hold a place of one of the statements, in their order."""
    spans = [place.span for each in statements for place in each.places]
    return (each for each in passages if any(each.span.contains(span) for span in spans))
