"""`auto`: search, tell the kind of the question, read or ask the strategy of that kind.

1. Search once; what was located is shown at once. A few short documents are read whole instead.
   If the question names files, only these are searched.
2. Tell the kind of the question: by a small model in the package, or by asking the reader.
3. One fact, or an overview: read the best passages. Several steps, one fact from each document, or
   everything of one kind: ask the strategy for that. The documents themselves: look them up.
4. If nothing was found, take one more step, chosen by the kind; with `effort=high` all of them.

With `effort=low` nothing is classified, and no model is asked where the answer is surely found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import accumulate
from typing import ClassVar, Literal

from colligate.core.answer import Answer, Form
from colligate.core.events import Event, name_first, pluralize
from colligate.core.parameters import require_min
from colligate.core.run import Run, Shown, show_ranked
from colligate.core.strategy import Needs, Strategy
from colligate.core.units import join_rankings, rank_documents
from colligate.documents import Hit, Passage
from colligate.documents.chunking import Structural
from colligate.documents.tokens import estimate_tokens
from colligate.errors import BudgetExceeded, MalformedOutput, ModelError
from colligate.library.sources import DocumentInfo, SearchMode, Within, find_named
from colligate.models import Role
from colligate.models.pairs import MiniLMKinds
from colligate.readers.finding import answer_found
from colligate.strategies.auto.collection import cover, describe_collection
from colligate.strategies.auto.prompts import KindReply, QuestionKind, ask_kind
from colligate.strategies.decompose import Decompose
from colligate.strategies.dualrag import DualRAG
from colligate.strategies.duquad import DuQUAD
from colligate.strategies.list_all import ListAll
from colligate.strategies.longrefiner import LongRefiner
from colligate.strategies.per_document import PerDocument
from colligate.strategies.rdr2 import RDR2

Effort = Literal["low", "normal", "high"]

_WHOLE = 16_000  # characters of all documents together that are read whole, in one prompt
_KIND_TOKENS = 40
_INSIDE = 3  # documents that are searched inside
_LEAST_OF_EACH = 500  # tokens of each document, about two passages

_LEAST_ODDS = 0.5  # of a kind other than one fact
_SURE = 0.9  # of several steps where a small reader takes them first (decision 30)

_STEPS = {
    "read": ("reading the best passages", ""),
    "read on": ("reading the next passages", ""),
    "read inside": (
        "looking up what is missing, and reading more of the best documents",
        "looked up what was missing",
    ),
    "read each": (
        "reading the best passages of each document",
        "read the best passages of each document",
    ),
    "decompose": ("looking up one step after the other", "looked up one step after the other"),
    "dualrag": ("looking up one step after the other", "looked up one step after the other"),
    "per-document": ("reading each document", "read the documents one by one"),
    "list-all": ("reading everything for a list", "read everything for a list"),
    "collection": ("looking up the documents", "looked up the documents"),
    "rdr2": ("following the best documents' headings", "followed the best documents' headings"),
    "longrefiner": (
        "reading the best documents by headings",
        "read the best documents by headings",
    ),
    "duquad": ("reading with another choice of passages", "let a judge compare two views"),
}
"""What a step does, and what was done."""


@dataclass(frozen=True)
class Classified(Event):
    """The odds of each kind of question, in [0, 1]; they add up to 1."""

    odds: Mapping[str, float]

    def line(self) -> str:
        kind = max(self.odds, key=lambda name: self.odds[name])
        return f"the question seems to need {QuestionKind(kind).meaning} ({self.odds[kind]:.0%})"


@dataclass(frozen=True)
class Escalated(Event):
    """A step is taken: why, and its name."""

    why: str
    to: str

    def line(self) -> str:
        by = "" if self.to.startswith("read") else f" ({self.to})"
        return f"{self.why}: {_STEPS[self.to][0]}{by}"

    lasting = True


@dataclass(frozen=True)
class Auto:
    """The right amount of work for each question: read, or ask the strategy that suits it.

    Attributes:
        effort: low reads once, and asks no model where the answer is surely found without one;
            normal may take one step more; high takes all, in turn
        pool: passages that the first search finds, for the reranker and for reading on
        k: passages of the first reading, at most k - 2 of one document if there are others
        tokens: estimated tokens that a reader reads first, if it reads passages together; it reads
            twice as many inside the best documents, and four times as many of all documents; less
            for a window in which that does not fit
        most_documents: documents that are read one by one for a question about every document; for
            more, consent is asked for
        kind: what tells the kind of a question: head, a small model in the package (of questions
            that are not in English the reader is asked), or model, the reader
    """

    name: ClassVar[str] = "auto"
    needs: ClassVar[Needs] = Needs(reranker="minilm")

    effort: Effort = "normal"
    pool: int = 50
    k: int = 10
    tokens: int = 6_000
    mode: SearchMode = SearchMode.HYBRID
    form: Form = Form.JOINED
    most_documents: int = 20
    kind: Literal["head", "model"] = "head"

    def __post_init__(self) -> None:
        require_min(self, pool=1, k=1, tokens=500, most_documents=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Search, find_kind, take the steps of the kind until one finds an answer."""
        infos = [info for info in await run.sources.documents() if info.passages]
        if not (infos or run.composed):
            return await run.read(question, (), form=self.form)
        everywhere, all_infos = run, infos
        if named := find_named(question, infos):
            infos = [info for info in infos if info.id in named]
            run = copy(run)
            run.sources = Within(run.sources, frozenset(named))
        found = await self._search(question, infos, run)
        kind = QuestionKind.FACT
        if self.effort != "low" and not found.whole:
            kind = await find_kind(question, run, self.kind)
            if len(named) == 1 and kind in (QuestionKind.STEPS, QuestionKind.EACH):
                run, found = everywhere, await self._search(question, all_infos, everywhere)
            if kind is QuestionKind.FACT and len(named) > 1:
                kind = QuestionKind.STEPS
            if kind is QuestionKind.EACH and len(found.infos) < 2:
                kind = QuestionKind.FACT
        if named and run is not everywhere:
            only = name_first([info.full_title for info in infos])
            found = replace(found, done=(f"looked only in {only}, which the question names",))
        for step in self._list_steps(kind, found, run):
            found = await self._take(step, kind, found, run)
            if found.spent or (found.best is not None and found.best.found):
                break
        if found.best is None:
            found = await self._take("read", kind, found, run)
        assert found.best is not None
        return replace(found.best, how="; ".join(found.done))

    def _list_steps(self, kind: QuestionKind, found: _Found, run: Run) -> list[str]:
        """Return the steps to take in turn until one finds an answer.

        A model that reads pointwise ends after one reading for one fact: of 26 questions without
        an answer one method more answered none rightly and 5 wrongly. Others read first: of 14
        questions of several steps 10 were answered at once and none wrongly (docs/benchmarks.md).
        """
        small = run.reads_alone
        steps = "decompose" if small else "dualrag"
        fit = not small and len(found.infos) * _LEAST_OF_EACH <= 4 * self._limit(run)
        order = {
            QuestionKind.FACT: ["read"] if small else ["read", "read inside"],
            QuestionKind.STEPS: [steps, "read"] if small else ["read", "read inside", steps],
            QuestionKind.EACH: ["read each"] if fit else ["per-document", "read"],
            QuestionKind.OVERVIEW: ["read", "longrefiner"],
            QuestionKind.LIST: ["list-all", "read"],
            QuestionKind.COLLECTION: ["collection"],
        }[kind]
        if found.whole or self.effort == "low":
            return ["read"]
        if self.effort == "high":
            order += ["read on", steps, "rdr2", "longrefiner", "duquad"]
        return list(dict.fromkeys(order))

    async def _search(self, question: str, infos: Sequence[DocumentInfo], run: Run) -> _Found:
        """Search once, which shows what was found before any model is asked."""
        small = run.reads_alone
        short = sum(info.characters for info in infos) <= _WHOLE
        if short and not (small or run.composed):
            names = await rank_documents(question, run, len(infos), self.mode)
            documents = [await run.document(name) for name in names]
            passages = [d.passage(d.span(0, len(d))) for d in documents if d.text.strip()]
            hits = [Hit(passage, 1 / rank) for rank, passage in enumerate(passages, 1)]
            return _Found(question, infos, hits, whole=True)
        wanted = max(self.k, self.pool)
        show = partial(spread, k=self.k)
        hits = await run.search(question, k=wanted, mode=self.mode, show=show)
        return _Found(question, infos, hits, ranked=run.composed)

    async def _take(self, step: str, kind: QuestionKind, found: _Found, run: Run) -> _Found:
        """Return what is found after one more step.

        A step that fails is left out, with a warning, if something was read or can be.
        BudgetExceeded or ModelError if reading fails, and nothing was found before.
        """
        why = f"the question asks for {kind.meaning}"
        if found.best is not None:
            why = "nothing found so far is the answer"
        if found.best is not None or step not in ("read", "read on"):
            run.emit(Escalated(why, step))
        try:
            if step in ("read inside", "read each"):
                each = step == "read each"
                choose = self._read_each if each else self._read_inside
                shown = await choose(found, run)
                form = Form.EACH if each else self.form
                answer = await run.read(found.question, shown, form=form)
                if each and answer.queries and not answer.found:
                    more = await self._look_up(answer.queries, run)
                    shown = _show_once([*more, *(one.passage for one in shown)])
                    answer = await run.read(found.question, shown, form=form)
                found = replace(found, done=(*found.done, f"{_STEPS[step][1]}: {why}"))
            elif step in ("read", "read on"):
                overview = kind is QuestionKind.OVERVIEW
                first, found = await self._choose(step, found, run, overview=overview)
                reason = "of the search, read later" if step == "read on" else "of the search"
                form = Form.LONG if overview else self.form
                shown = show_ranked(first, reason)
                sure = None
                if self.effort == "low" and form in (Form.SHORT, Form.JOINED):
                    sure = await answer_found(found.question, shown, run)
                answer = sure or await run.read(found.question, shown, form=form)
            elif step == "collection":
                answer = await describe_collection(found.question, found.infos, run)
                found = replace(found, done=(*found.done, _STEPS[step][1]))
            else:
                answer = await (await self._make(step, found, run)).answer(found.question, run)
                found = replace(found, done=(*found.done, f"{_STEPS[step][1]}: {why}"))
        except (BudgetExceeded, ModelError) as error:
            if step == "read" and found.best is None:
                raise
            run.warn(f"{step} is left out: {error}")
            return replace(found, spent=isinstance(error, BudgetExceeded))
        if found.best is not None:
            before = (*found.best.evidence, *answer.evidence)
            answer = replace(answer, evidence=tuple(dict.fromkeys(before)))
        return replace(found, best=answer)

    async def _choose(
        self, step: str, found: _Found, run: Run, *, overview: bool
    ) -> tuple[list[Hit], _Found]:
        """Return the best passages that were not read, and what is left; rerank them once.

        For an overview of a single document they are from all its sections.
        """
        hits = list(found.hits)
        if not (found.whole or found.ranked):
            hits = await run.reorder(found.question, hits, mode=self.mode)
        first = hits if found.whole else spread(hits, self._count_first(hits, run))
        if overview and len(found.infos) == 1 and not (found.whole or run.composed):
            document = await run.document(found.infos[0].id)
            spans = await asyncio.to_thread(Structural(), document)
            parts = cover([document.passage(span) for span in spans], self.k)
            first = [Hit(passage, 0.0) for passage in parts]
        documents = {hit.passage.document_id for hit in first}
        total = sum(info.passages for info in found.infos if info.id in documents)
        more = " more" if step == "read on" else ""
        passages = f"{len(first):,}{more} of {total:,} passages"
        if found.whole or total <= len(first):
            passages = pluralize(len(first), f"{more.strip()} passage".strip())
        done = f"read {passages} of {pluralize(len(documents), 'document')}"
        rest = [hit for hit in hits if hit not in first]
        return first, replace(found, hits=rest, ranked=True, done=(*found.done, done))

    def _count_first(self, hits: Sequence[Hit], run: Run) -> int:
        """Return how many passages are read first."""
        if run.reads_alone:
            return self.k
        sizes = accumulate(estimate_tokens(hit.passage.text) for hit in hits)
        return max(self.k, sum(size <= self._limit(run) for size in sizes))

    def _limit(self, run: Run) -> int:
        """Return `tokens`, or an eighth of the window if that is less: four times as many fit."""
        window = run.model(Role.READER).context_tokens
        return self.tokens if window is None else min(self.tokens, window // 8)

    async def _read_inside(self, found: _Found, run: Run) -> list[Shown]:
        """Return what the reader would search for, and more of the best documents.

        A clause seldom names its contract: beside those of other contracts a search misses it.
        Documents that are short are read whole, of others what a search in them finds.
        """
        parts = await self._look_up(found.best.queries if found.best else (), run)
        left = 2 * self._limit(run) - sum(estimate_tokens(each.text) for each in parts)
        among = [info.id for info in found.infos]
        best = await rank_documents(found.question, run, _INSIDE, self.mode, among)
        for name in best:
            most = left if name == best[-1] else left // 2  # the best one has most of it
            document = await run.document(name)
            if estimate_tokens(document.text) <= most:
                spans = await asyncio.to_thread(Structural(), document)
                passages = [document.passage(span) for span in spans]
            else:
                hits = await run.search(
                    found.question, k=self.pool, mode=self.mode, documents=[name]
                )
                passages = [hit.passage for hit in hits]
            kept = keep_first(passages, most)
            left -= sum(estimate_tokens(each.text) for each in kept)
            parts += kept
        return _show_once(parts)

    async def _look_up(self, queries: Sequence[str], run: Run) -> list[Passage]:
        """Return the best passages for what a reader would search for."""
        asked = [await run.search(each, k=self.k, mode=self.mode) for each in queries]
        hits = join_rankings(asked) if asked else []
        return keep_first([hit.passage for hit in hits], self._limit(run))

    async def _read_each(self, found: _Found, run: Run) -> list[Shown]:
        """Return the first and the best passages of every document, to be read at once."""
        most, parts = 4 * self._limit(run) // len(found.infos), list[Passage]()
        for info in found.infos:
            hits = await run.search(found.question, k=self.k, mode=self.mode, documents=[info.id])
            document = await run.document(info.id)
            spans = await asyncio.to_thread(Structural(), document)
            first = [document.passage(span) for span in spans[:1]]  # it says what it is
            parts += keep_first([*first, *(hit.passage for hit in hits)], most)
        return _show_once(parts)

    async def _make(self, step: str, found: _Found, run: Run) -> Strategy:
        """Return the strategy of a step; many documents are read one by one only with consent."""
        if step == "per-document":
            count, most = len(found.infos), self.most_documents
            takes = (
                f"reading {count:,} documents one by one takes about {count + 2:,} model calls "
                f"(the best {most} alone: about {most + 2})"
            )
            if count > most and not await run.consent(takes):
                run.warn(
                    f"the {most} documents that a search finds best are read, of {count:,}: "
                    "--yes reads all"
                )
                count = most
            return PerDocument(documents=count, mode=self.mode)
        made: dict[str, Callable[..., Strategy]] = {
            "decompose": Decompose,
            "dualrag": DualRAG,
            "rdr2": RDR2,
            "longrefiner": partial(LongRefiner, no_global=True),
            "duquad": DuQUAD,
        }
        if step == "list-all":
            return ListAll(mode=self.mode)
        return made[step](mode=self.mode, form=self.form)


@dataclass(frozen=True)
class _Found:
    """What one question found so far: passages to read, the best answer, what was done."""

    question: str
    infos: Sequence[DocumentInfo]
    hits: Sequence[Hit]  # not read yet, the best first
    whole: bool = False  # whether they are whole documents
    ranked: bool = False  # whether they are in the reranker's order
    best: Answer | None = None
    done: tuple[str, ...] = ()
    spent: bool = False  # whether the token budget ended a step


async def find_kind(question: str, run: Run, by: Literal["head", "model"]) -> QuestionKind:
    """Return the kind of a question; one fact if no other is likely enough or none can be told.

    The head knows English only: the reader is asked about a question in another language.
    """
    try:
        if by == "head" and run.language == "en":
            odds = await asyncio.to_thread(lambda: _load_sorter().score(question))
            judged = dict(zip(QuestionKind, odds, strict=True))
            run.emit(Classified({kind.value: share for kind, share in judged.items()}))
            kind = max(judged, key=judged.__getitem__)
            least = _SURE if kind is QuestionKind.STEPS and run.reads_alone else _LEAST_ODDS
            return kind if judged[kind] >= least else QuestionKind.FACT
        with run.tokens.reserve_reading():
            reply = await run.structured(ask_kind(question), KindReply, max_tokens=_KIND_TOKENS)
        run.emit(Classified({reply.value.kind.value: 1.0}))
        return reply.value.kind
    except (BudgetExceeded, ModelError, MalformedOutput) as error:
        run.warn(f"the question is not classified: {error}")
        return QuestionKind.FACT


@cache
def _load_sorter() -> MiniLMKinds:
    return MiniLMKinds()


def keep_first(passages: Sequence[Passage], most: int) -> list[Passage]:
    """Return the first passages, as many as have so many estimated tokens together."""
    sizes = accumulate(estimate_tokens(each.text) for each in passages)
    return [each for each, size in zip(passages, sizes, strict=True) if size <= most]


def _show_once(passages: Sequence[Passage]) -> list[Shown]:
    once = dict(zip((each.span for each in passages), passages, strict=True))
    return [Shown(each, reason="looked up, or of a best document") for each in once.values()]


def spread(hits: Sequence[Hit], k: int) -> list[Hit]:
    """Return the `k` best passages, at most `k` - 2 of one document if others were found."""
    most = max(1, k - 2)
    counts: dict[str, int] = {}
    first: list[Hit] = []
    for hit in hits:
        name = hit.passage.document_id
        counts[name] = counts.get(name, 0) + 1
        if counts[name] <= most:
            first.append(hit)
    rest = [hit for hit in hits if hit not in first]
    return sorted([*first, *rest][:k], key=lambda hit: -hit.score)
