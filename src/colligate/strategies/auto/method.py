"""`auto`: read first, check, and do more only where something is missing.

1. Look: how many documents there are, and how long; a few short ones are read whole. One search;
   what it located is shown at once. If the question names what it asks for ("when", "how many"),
   and the best passage alone clearly answers it, that is the answer. Otherwise classify the
   question by the odds of four kinds, which takes no call: one fact, several steps, one fact from
   each of many documents, an overview. A reader without odds is not asked: it is one fact.
2. Read: the search is reranked, spread over documents, and read once; or, with `refined`, what
   LongRefiner's local scores choose of the best documents for a budget of tokens. A question of
   several steps goes to DualRAG at once, unless the best passage alone clearly answers it, and one
   about each document to SPD-RAG, because a reader that is shown a part of what such a question
   takes answers from it. If it asks which of the documents something holds for, a small reader
   answers from the best passage of each alone, and what they say is joined: an agent for each takes
   minutes.
3. Check: is there a cited answer, and is every number and name of the question in it?
4. Escalate by what is missing, as far as the effort allows: DualRAG for a part that is missing,
   with what is verified in its outline; for long documents RDR2, or LongRefiner if the reader is
   small or headings are not sure; else the next passages of the search; then DualRAG, then DuQUAD.
   If two passages, each sure by itself, contradict each other, DuQUAD's two views and its judge
   decide; if they do not, both answers are shown. Where everything was read a large reader is
   asked nothing more, and a small one only for steps: it may find in two readings what it misses
   in one. LongRefiner and DuQUAD are left out where all that they find was read. A budget that is
   spent ends it too.

`effort` is `low` (one reading, nothing is classified), `normal` (one method more) or `high` (all).
Where a small reader found nothing, `normal` ends: of 26 such questions one method more answered
none rightly and 5 wrongly.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from colligate.core.answer import Answer, split_answer
from colligate.core.apart import (
    MOST_APART,
    JudgedAlone,
    asks_several,
    read_if_clear,
    read_ranked,
    read_rival,
    reads_apart,
    speaks_of_several,
)
from colligate.core.citing import Citation, Stated, write_answer
from colligate.core.comparing import asks_to_compare, contradict, may_compare
from colligate.core.events import Answered, Event, pluralize
from colligate.core.fit import reserve_reading
from colligate.core.followup import Turn
from colligate.core.meaning import Meaning
from colligate.core.parameters import require_min
from colligate.core.reader import Form, is_small, read
from colligate.core.run import Run, titled_text
from colligate.core.strategy import Calls, Needs
from colligate.core.subject import check_subject
from colligate.core.support import find_spelled_out, is_number, split_content_words
from colligate.core.units import choose_units, rank_documents
from colligate.core.versions import show_other
from colligate.documents import Document, Hit, Passage, Span
from colligate.errors import BudgetExceeded, ModelError
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Capability, Role
from colligate.strategies.auto.events import Classified, Escalated
from colligate.strategies.auto.prompts import QuestionKind, kind_messages
from colligate.strategies.dualrag import DualRAG, Knowledge
from colligate.strategies.duquad import DuQUAD
from colligate.strategies.duquad.events import Viewed
from colligate.strategies.longrefiner import LongRefiner, rank_refined
from colligate.strategies.longrefiner.structuring import Structuring
from colligate.strategies.rdr2 import RDR2
from colligate.strategies.spd_rag import SPDRAG

Effort = Literal["low", "normal", "high"]

_METHODS = {"low": 0, "normal": 1, "high": 6}  # that may be asked: high is all there are
_SURE = {
    QuestionKind.STEPS: 0.65,
    QuestionKind.EACH: 0.4,
    QuestionKind.OVERVIEW: 0.5,
}  # odds from which a kind counts
_AND = re.compile(r"\band\b", re.I)
# How a question begins that asks for a fact, whether it takes several steps or not.
_NAMED = re.compile(
    r"(?:^|,)\W*(?:\w+\s+)?(?:who(?:m|se)?|when|where|which|how (?:many|much|long|old|often))\b",
    re.I,
)
_ALL_STEPS = 0.75  # odds that one passage answers several steps; 13 real chains had .67 at most
_HARDLY = 0.1  # odds of one fact below which a question of steps need not be sure
_WHOLE = 16_000  # characters of all documents together that a large reader reads whole
_LONG = 20_000  # characters of a document that is read by its structure
_SURE_HEADINGS = 0.6  # confidence in a tree that a router walks
_FEW = 6  # passages for a small reader, as `retrieve-read`


@dataclass(frozen=True)
class Auto:
    """The right amount of work for each question: read, check, do more where something is missing.

    Attributes:
        effort: low reads once; normal may try one more method; high tries all, in turn
        pool: passages that the first search finds, for the reranker and for reading on
        k: passages of the first reading, at most k - 2 of one document if there are others; none:
            10, or 6 by a small reader after a reranker
        refined: tokens of the best documents that LongRefiner's local scores choose, without a
            call, for the first reading instead of k passages; none: passages
        most_documents: documents that are read one by one for a question about every document; for
            more, consent is asked for
    """

    name: ClassVar[str] = "auto"
    needs: ClassVar[Needs] = Needs(reranker="minilm")
    calls: ClassVar[Calls] = Calls(3)

    effort: Effort = "normal"
    pool: int = 50
    k: int | None = None
    refined: int | None = None  # finds the answer as often as passages do: decision 30
    mode: SearchMode = SearchMode.HYBRID
    form: Form | None = None  # joined; short for a small reader, which cites it more surely
    most_documents: int = 20

    def __post_init__(self) -> None:
        require_min(self, pool=1, k=1, refined=1, most_documents=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Classify, read, check, escalate."""
        infos = await run.sources.documents()
        if not infos:
            return await read(question, [], run, strategy=self.name, evidence=())
        inquiry = _Inquiry(question, self, run, infos)
        await inquiry.locate()
        if inquiry.names_a_fact and await inquiry.read_at_once():
            return inquiry.finish()
        with reserve_reading(run):
            kind = await inquiry.classify()
        left = _METHODS[self.effort]
        if kind is QuestionKind.STEPS and await inquiry.read_at_once():
            return inquiry.finish()
        joins = inquiry.joins and not may_compare(question)
        if kind is QuestionKind.STEPS or (kind is QuestionKind.EACH and not joins):
            await inquiry.ask("dualrag" if kind is QuestionKind.STEPS else "spd-rag", kind.meaning)
            left -= 1
        else:
            await inquiry.read_first(kind)
        while left > 0 and not inquiry.spent and (step := await inquiry.choose_next(kind)):
            await inquiry.ask(*step)
            left -= 1
        return inquiry.finish()


@dataclass(frozen=True)
class _Rival:
    """Another answer, in a few words and as a document states it."""

    short: str
    stated: Stated
    document: Document


class _Inquiry:
    """One question under way: what was found, what was read, and what was done."""

    def __init__(self, question: str, auto: Auto, run: Run, infos: Sequence[DocumentInfo]) -> None:
        self.question, self.auto, self.run, self.infos = question, auto, run, infos
        self.best: Answer | None = None  # the best answer so far, or a refusal
        self.odds: dict[str, float] = {}
        self.k = 0  # passages of the first reading
        self.whole = False  # whether they are whole documents
        self.form = Form.JOINED
        self.hits: list[Hit] = []
        self.shown: list[Passage] = []
        self.done: list[str] = []  # what was done, for the line to the user
        self.asked: set[str] = set()
        self.missing: list[str] = []  # words of the question that the answer leaves out
        self.small = is_small(run.model(Role.READER))
        self.spent = False  # whether the token budget ended a method
        self.rival: _Rival | None = None  # what contradicts the answer, until that is decided
        self.passage_odds: dict[Span, float] = {}  # of those that were judged alone
        self.compared: set[str] = set()  # the documents that the agents of DuQUAD read
        self.judged: dict[Passage, float] = {}  # the same of the best one, before it was read
        self.ranked = False  # whether `hits` are in the reranker's order
        run.trace.listen(self._note)

    @property
    def joins(self) -> bool:
        """Whether what passages of several documents say, each read alone, is joined."""
        return reads_apart(self.run, "auto", self.form) and asks_several(self.question)

    @property
    def names_a_fact(self) -> bool:
        """Whether the question asks for one thing by its name, and so not for an overview."""
        asked = _NAMED.search(self.question) and not _asks_many(self.question)
        return bool(asked) and self.auto.effort != "low"

    def _note(self, event: Event) -> None:
        if isinstance(event, JudgedAlone):
            self.passage_odds.update(zip(event.spans, event.odds, strict=True))
        if isinstance(event, Viewed):
            self.compared.update(event.documents)

    async def classify(self) -> QuestionKind:
        """Return the kind of the question, a fact unless the odds of another are high enough."""
        auto, run = self.auto, self.run
        given = Capability.LABELS in run.model(Role.READER).capabilities
        if auto.effort == "low" or not given:
            return QuestionKind.FACT
        try:
            judged = await run.labels(
                kind_messages(self.question),
                [kind.value for kind in QuestionKind],
                role=Role.READER,
            )
        except (BudgetExceeded, ModelError) as error:
            run.warn(f"the question is not classified: {error}")
            return QuestionKind.FACT
        self.odds = dict(judged.odds)
        run.emit(Classified(self.odds))
        kind = choose_kind(self.question, self.odds)
        return QuestionKind.FACT if kind is QuestionKind.EACH and len(self.infos) < 2 else kind

    async def locate(self) -> None:
        """Search once, which shows what was found before any model is asked."""
        auto, run = self.auto, self.run
        short = sum(info.characters for info in self.infos) <= _WHOLE
        self.form = auto.form or (Form.SHORT if self.small else Form.JOINED)
        self.k = auto.k or (_FEW if self.small and run.reranker is not None else 10)
        self.whole = short and not self.small and auto.k is None and auto.refined is None
        if self.whole:
            self.hits = await self._find_whole()
            self.k = len(self.hits)
        else:
            wanted = max(self.k, auto.pool)
            first = partial(spread, k=self.k)
            self.hits = await run.search(self.question, k=wanted, mode=auto.mode, show=first)

    async def read_first(self, kind: QuestionKind) -> None:
        """Read the best passages, apart or together as it suits the reader."""
        auto, run = self.auto, self.run
        await self._rank()
        if kind is QuestionKind.EACH:
            best = {hit.passage.document_id: hit for hit in reversed(self.hits)}
            first = sorted(best.values(), key=lambda hit: -hit.score)[:MOST_APART]
        elif auto.refined is not None:
            first = await self._refine(auto.refined)
        else:
            first = self.hits if self.whole else spread(self.hits, self.k)
        self.shown = [hit.passage for hit in first]
        documents = {passage.document_id for passage in self.shown}
        self.done.append(
            f"read {pluralize(len(first), 'passage')} of {pluralize(len(documents), 'document')}"
        )
        self.best = await read_ranked(
            self.question,
            first,
            run,
            strategy=auto.name,
            form=self.form,
            reading="together" if kind is QuestionKind.OVERVIEW else "auto",
            judged=self.judged,
        )
        self.best = await check_subject(self.best, run)
        if self.best.found:
            readable = sum(info.passages > 0 for info in self.infos)
            if kind is QuestionKind.EACH and len(first) < readable:
                run.warn(
                    f"the answer is from the {len(first)} documents that a search finds best, "
                    f"of {readable:,}"
                )
            self.missing = self._find_missing(self.best, self.shown)
            if not self.missing and auto.effort != "low":
                await self._find_rival(self.best, first)

    async def _refine(self, budget: int) -> list[Hit]:
        """Return the parts of the best documents that fit the budget, best first.

        If all of them are of one document, the last quarter goes to the others.
        """
        run, question, mode = self.run, self.question, self.auto.mode
        self.asked.add("longrefiner")  # it would find the same
        names = await rank_documents(question, run, LongRefiner.documents, mode)
        refiner = LongRefiner(
            budget=budget, structuring=Structuring.HEADINGS, no_global=True, mode=mode
        )
        kept = rank_refined(await refiner.refine(question, run, documents=names))
        found = {hit.passage.document_id for hit in kept}
        if len(found) > 1 or not (others := [name for name in names if name not in found]):
            return kept
        few = replace(refiner, budget=budget // 4)
        more = rank_refined(await few.refine(question, run, documents=others))
        left = sum(len(hit.passage.text) for hit in kept) * 3 // 4
        best: list[Hit] = []
        for hit in kept:
            left -= len(hit.passage.text)
            if left >= 0 or not best:
                best.append(hit)
        return [*best, *more]

    def _was_shown(self, passage: Passage) -> bool:
        return any(shown.span.contains(passage.span) for shown in self.shown)

    async def _rank(self) -> None:
        """Put the passages that were found in the reranker's order, once."""
        if not (self.whole or self.ranked):
            self.hits = await self.run.reorder(self.question, self.hits, mode=self.auto.mode)
            self.ranked = True

    async def _find_rival(self, best: Answer, hits: Sequence[Hit]) -> None:
        """Look for another sure passage that contradicts the one that was read."""
        try:
            other = await read_rival(self.question, best, hits, self.passage_odds, self.run)
        except (BudgetExceeded, ModelError) as error:
            self.run.warn(f"could not check whether another passage says otherwise: {error}")
            return
        if other is not None and contradict(best.short or "", other[0], self.question):
            short, stated = other
            document = await self.run.document(stated.places[0].span.document_id)
            self.rival = _Rival(short, stated, document)

    async def read_at_once(self) -> bool:
        """Read the best passage if it alone very likely holds the answer; return whether it does.

        A long question for one fact sounds like several steps. It is tried once.
        """
        auto, run = self.auto, self.run
        if self.judged or not (self.hits and reads_apart(run, "auto", self.form)):
            return False
        await self._rank()
        hits = spread(self.hits, self.k)
        try:
            answer = await read_if_clear(
                self.question,
                hits,
                run,
                strategy=auto.name,
                least_odds=_ALL_STEPS,
                judged=self.judged,
            )
        except (BudgetExceeded, ModelError) as error:
            run.warn(f"the best passage is not read alone: {error}")
            return False
        if answer is None or self._find_missing(answer, [hit.passage for hit in hits]):
            return False
        answer = await check_subject(answer, run)
        if not answer.found:
            return False
        self.done.append("read 1 passage, which states the answer by itself")
        self.best = answer
        return True

    async def _find_whole(self) -> list[Hit]:
        """Return all documents, each as one passage, in the order of their best passages."""
        names = await rank_documents(self.question, self.run, len(self.infos), self.auto.mode)
        documents = [await self.run.document(name) for name in names]
        whole = [each.passage(each.span(0, len(each))) for each in documents if each.text.strip()]
        return [Hit(passage, 1 / rank) for rank, passage in enumerate(whole, 1)]

    async def choose_next(self, kind: QuestionKind) -> tuple[str, str] | None:
        """Return the most promising method that was not asked, and why; None if nothing is missing.

        "search" stands for the next passages of the search.
        """
        if self.best is not None and self.rival is not None and "duquad" not in self.asked:
            first, other = self.best.citations[0].title, self.rival.document.title
            both = f"“{self.best.short}” ({first}), “{self.rival.short}” ({other})"
            return "duquad", f"two passages say different things: {both}"
        if self.best is not None and self.best.found and not self.missing:
            return None
        refused = self.best is not None and not self.best.found
        ends = self.small and self.auto.effort == "normal"
        if refused and ends and kind is not QuestionKind.EACH:
            return None
        chain = bool(self.missing) or self.odds.get("steps", 0.0) >= self.odds.get("fact", 1.0)
        long = any(info.characters > _LONG for info in self.infos)
        routed = long and not self.small and await self._has_sure_headings()
        read = Counter(h.passage.document_id for h in self.hits if self._was_shown(h.passage))
        more = len(self.hits) > read.total()
        suits = (
            ("spd-rag", kind is QuestionKind.EACH),
            ("dualrag", chain),
            ("rdr2", routed),
            ("longrefiner", long and not routed),
            ("search", more),
        )
        order = [name for name, does in suits if does] + ["dualrag", "duquad"]
        if self.whole or sum(info.passages for info in self.infos) <= read.total():
            order = [name for name in order if name in ("spd-rag", "dualrag") and self.small]
        why = "nothing found so far is the answer"
        if self.missing:
            why = f"the answer leaves out {', '.join(self.missing)}"
        for name in order:
            if name not in self.asked and await self._may_read_more(name, read):
                return name, why
        return None

    async def _may_read_more(self, method: str, read: Counter[str]) -> bool:
        """Return whether a method may read more than `read` of a document, if one search tells."""
        try:
            names = await self._find_unread(method)
        except (BudgetExceeded, ModelError):  # the method says it, if it matters
            return True
        if names is None:
            return True
        return any(read[info.id] < info.passages for info in self.infos if info.id in names)

    async def _find_unread(self, method: str) -> set[str] | None:
        """Return the documents that a method would read anew; None if no search tells."""
        mode = self.auto.mode
        if method == "longrefiner":
            return set(await rank_documents(self.question, self.run, LongRefiner.documents, mode))
        if method != "duquad":
            return None
        _, found = await choose_units(
            self.question, self.run, DuQUAD.units, DuQUAD.documents, pool=DuQUAD.pool, mode=mode
        )
        return {passage.document_id for passage in found if not self._was_shown(passage)}

    async def _has_sure_headings(self) -> bool:
        """Return whether a router can trust the headings of the long documents found."""
        found = {hit.passage.document_id for hit in spread(self.hits, self.k)}
        names = [info.id for info in self.infos if info.id in found and info.characters > _LONG]
        trees = [(await self.run.document(name)).tree for name in names]
        sure = (each.structure.confidence >= _SURE_HEADINGS for each in trees)
        return bool(trees) and all(sure) and all(each.structure.basis != "none" for each in trees)

    async def ask(self, method: str, why: str) -> None:
        """Ask a method, and keep its answer if it is better than the one before.

        If it fails before anything was read, the passages of the search are read.

        Raises:
            BudgetExceeded, ModelError: they cannot be read either, or there are none.
        """
        self.asked.add(method)
        self.run.emit(Escalated(why, method))
        try:
            done, answer = await self._answer_by(method)
        except (BudgetExceeded, ModelError) as error:
            self.spent = isinstance(error, BudgetExceeded)
            if self.best is None and not self.hits:
                raise
            self.run.warn(f"{method} is left out: {error}")
            if self.best is not None:
                return
            done, answer = await self._read_on()
        answer = await check_subject(answer, self.run)
        self.done.append(f"{done}: {why}")
        if self.best is not None and self.rival is not None:
            said = answer.short or ""
            against = [
                contradict(said, each, self.question)
                for each in (self.best.short or "", self.rival.short)
            ]
            seen = self.rival.document.id in self.compared
            if answer.found and seen and any(against) and not all(against):
                self.best, self.rival = answer, None
        elif self.best is None or not self.best.found:
            before = self.best.evidence if self.best else ()
            evidence = tuple(dict.fromkeys((*before, *answer.evidence)))
            self.best = answer if answer.found else replace(answer, evidence=evidence)
        # What was missing has a citation of its own.
        elif not {each.span for each in answer.citations} <= {c.span for c in self.best.citations}:
            await self._complete(self.best, answer)

    async def _complete(self, best: Answer, answer: Answer) -> None:
        """Keep an answer that has words which the best one leaves out.

        If it leaves out others, both are joined. If they cannot be, or the question asks for one
        thing, which is not both, the one that lacks less stays.
        """
        missing, still = (self._find_missing(each, self.shown) for each in (best, answer))
        left = [word for word in missing if word in still]
        if left == missing:
            return
        if left != still:
            several = bool(_AND.search(self.question)) or _asks_many(self.question)
            ids = {each.span.document_id for each in (*best.citations, *answer.citations)}
            documents = {name: await self.run.document(name) for name in ids}
            joined = join_answers(best, answer, documents) if several else None
            if joined is None:
                # For one thing the later one stays if both lack as much: it was looked up for that.
                stays = len(missing) < len(still) or (several and len(missing) == len(still))
                self.best, self.missing = (best, missing) if stays else (answer, still)
                return
            answer = joined
            spans = tuple(each.span for each in answer.citations)
            self.run.emit(Answered(True, answer.text, spans))
        self.best, self.missing = answer, left

    async def _answer_by(self, method: str) -> tuple[str, Answer]:
        """Return what a method does, in words, and its answer."""
        auto, question, run = self.auto, self.question, self.run
        if self.best and self.missing and method in ("rdr2", "longrefiner", "duquad"):
            run.earlier = Turn.of(self.best).cited  # what is verified is among what it reads
        if method == "dualrag":
            form = auto.form or DualRAG.form
            steps = DualRAG(retrieved=auto.pool, mode=auto.mode, form=form)
            answer = await steps.answer(question, run, self._outline_known())
            return "looked up one step after the other", answer
        if method == "rdr2":
            router = RDR2(mode=auto.mode, on_nothing="nothing", form=auto.form or RDR2.form)
            return "followed the headings of the best documents", await router.answer(question, run)
        if method == "longrefiner":
            form = auto.form or LongRefiner.form
            refiner = LongRefiner(no_global=True, on_nothing="nothing", mode=auto.mode, form=form)
            return "read the best documents by their headings", await refiner.answer(question, run)
        if method == "duquad":
            views = DuQUAD(mode=auto.mode, form=auto.form or DuQUAD.form)
            done = "read again with another choice of passages"
            shown: Sequence[Passage] | None = None
            if self.rival is not None:
                # Apart, as small readers read by default, there are no two views and no judge. The
                # passages are those of the first reading, and in the second view as many as differ.
                views, shown = replace(views, reading="together", local_documents=2), self.shown
                done = "let a judge compare two views"
            return done, await views.answer(question, run, shown)
        return await (self._read_each() if method == "spd-rag" else self._read_on())

    async def _read_each(self) -> tuple[str, Answer]:
        """Read each document by an agent of its own, the best ones if there are too many."""
        count, most = len(self.infos), self.auto.most_documents
        takes = (
            f"an agent for each of {count:,} documents takes about {2 * count:,} model calls "
            f"(the best {most} alone: about {2 * most})"
        )
        if count > most and not await self.run.consent(takes):
            self.run.warn(
                f"the {most} documents that a search finds best are read, of {count:,}: "
                "--yes reads all"
            )
            count = most
        form = self.auto.form or SPDRAG.form
        agents = SPDRAG(documents=count, most_calls=None, mode=self.auto.mode, form=form)
        done = f"read {pluralize(count, 'document')} one by one"
        return done, await agents.answer(self.question, self.run)

    async def _read_on(self) -> tuple[str, Answer]:
        """Read the next passages of the search."""
        await self._rank()
        rest = [hit for hit in self.hits if not self._was_shown(hit.passage)]
        more = spread(rest, self.k)
        before = "more " if self.shown else ""
        self.shown += [hit.passage for hit in more]
        answer = await read_ranked(
            self.question,
            more,
            self.run,
            strategy=self.auto.name,
            why="of the search, read later",
            form=self.form,
        )
        return f"read {pluralize(len(more), f'{before}passage')}", answer

    def _outline_known(self) -> Knowledge:
        """Return the sentences that an answer which leaves something out cites.

        Their passages are not summarised again: they have no word of what is missing.
        """
        known = Knowledge(self.question)
        cited = self.best.citations if self.best and self.missing else ()
        for passage in self.shown:
            inside = [each for each in cited if passage.span.contains(each.span)]
            known.quote(passage, [(each.span, each.quote) for each in inside])
        return known

    def _find_missing(self, answer: Answer, passages: Sequence[Passage]) -> list[str]:
        """Return the numbers and names of the question that an answer leaves out, though the
        passages of the first reading have them."""
        spans = [citation.span for citation in answer.citations]
        cited = [each for each in passages if any(each.span.overlaps(span) for span in spans)]
        quoted = [" ".join([c.title, *c.section, c.quote]) for c in answer.citations]
        said = set(split_content_words(" ".join([answer.text, *quoted, *map(titled_text, cited)])))
        for citation in answer.citations:
            said |= find_spelled_out(self.question, citation.title)
        left = set(split_content_words(" ".join(map(titled_text, passages)))) - said
        needed = find_needed(self.question)
        return [word for word in needed if left.intersection(split_content_words(word))]

    def finish(self) -> Answer:
        """Return the best answer, with what was done."""
        assert self.best is not None
        if self.rival is not None:
            [place] = self.rival.stated.places
            sentence = " ".join(self.rival.document.slice(place.span).split())
            self.best = show_other(self.best, sentence, self.rival.document, place.span)
            self.run.warn("two passages say different things: both are shown")
        if self.missing:
            self.run.warn(f"the answer may be incomplete: it leaves out {', '.join(self.missing)}")
        how = "; ".join(self.done)
        return replace(self.best, question=self.question, strategy=self.auto.name, how=how)


def choose_kind(question: str, odds: Mapping[str, float]) -> QuestionKind:
    """Return the likeliest kind if it is likely enough, otherwise a fact.

    Words count too, in English: a question about each document must speak of several things or
    compare them, since an agent for each document is too costly for a guess. One that joins two
    things by "and" is of several steps even if that is not sure, if one fact is hardly likely.
    """
    kind = QuestionKind(max(odds, key=lambda name: odds[name]))
    joins = odds[QuestionKind.FACT] <= _HARDLY and _AND.search(question) is not None
    if kind is QuestionKind.EACH and not _asks_many(question):
        kind = QuestionKind.STEPS if joins else QuestionKind.FACT
    likely = odds[kind] >= _SURE.get(kind, 0.0)
    return kind if likely or (joins and kind is QuestionKind.STEPS) else QuestionKind.FACT


def _asks_many(question: str) -> bool:
    return speaks_of_several(question) or asks_to_compare(question)


def join_answers(one: Answer, other: Answer, documents: Mapping[str, Document]) -> Answer | None:
    """Return one answer with the statements of two; None if one says what it does not cite."""
    parts = [split_answer(each) for each in (one, other)]
    for answer, stated in zip((one, other), parts, strict=True):
        if write_answer(stated, documents, ()).text != answer.text:
            return None
    cited = write_answer(list(dict.fromkeys([*parts[0], *parts[1]])), documents, ())
    both = (*one.citations, *other.citations)
    meanings = {each.span: each.meaning for each in sorted(both, key=_is_unclear)}
    shorts = dict.fromkeys([one.short, other.short])
    return replace(
        one,
        text=cited.text,
        short="; ".join(filter(None, shorts)) if all(shorts) else None,
        citations=tuple(replace(each, meaning=meanings[each.span]) for each in cited.citations),
        evidence=tuple(dict.fromkeys((*one.evidence, *other.evidence))),
        warnings=tuple(dict.fromkeys((*one.warnings, *other.warnings))),
    )


def _is_unclear(citation: Citation) -> bool:
    return citation.meaning is Meaning.UNCLEAR


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


def find_needed(question: str) -> list[str]:
    """Return the numbers and names of a question, word by word."""
    words = re.findall(r"\w+(?:['’.,-]\w+)*", question)
    needed = [word for word in words[1:] if word[0].isupper() or is_number(word)]
    return list(dict.fromkeys(word for word in needed if split_content_words(word)))
