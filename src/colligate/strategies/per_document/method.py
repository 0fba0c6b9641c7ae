"""Per document: one question to each document, and what follows from their answers. Our own way.

1. The question is rewritten for a single document (one call): "Which of these leases end this
   year?" becomes "When does the lease end?".
2. Each document is searched and read alone, several at a time, by the reader of the run. What all
   of them state is judged together.
3. The reader says in one call which documents meet the question, and whether figures that were
   found are compared or added (`prompts.Combination`); code computes that (`figures.py`).

Every document in view is read. The answer names those without a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import ClassVar

from colligate.concurrency import map_concurrent
from colligate.core.answer import (
    COMPUTED,
    NOT_FOUND,
    Answer,
    Entry,
    Evidence,
    Form,
    Stated,
    make_citation,
    split_answer,
)
from colligate.core.events import Event, Noted, Progressed, Trace, name_first, pluralize
from colligate.core.fit import split_by_tokens
from colligate.core.parameters import require_min
from colligate.core.run import Run, show_ranked
from colligate.core.strategy import Needs
from colligate.core.units import join_rankings, list_best
from colligate.errors import BudgetExceeded, ColligateError, ModelError, UsageError
from colligate.library.sources import DocumentInfo, SearchMode
from colligate.models import Role
from colligate.readers.citing import (
    Cited,
    documents_of,
    finish,
    judge_stated,
    write_answer,
    write_checked,
)
from colligate.strategies.per_document.figures import Computed, Source, compute
from colligate.strategies.per_document.prompts import (
    MOST_FIGURES,
    QUESTION_TOKENS,
    Combination,
    combine_messages,
    question_messages,
)

_REPLY = 3000  # tokens of a combination, at most a third of the window
_UNKNOWN = 100_000  # tokens of findings for a model that does not report its window
_SPARE = 0.9  # of a window: findings counted apart have more tokens when joined


@dataclass(frozen=True)
class PerDocument:
    """One question to every document, and what follows from their answers.

    A document that fails is reported and stops no other. A part of the token budget is reserved for
    the last call.

    Attributes:
        documents: documents that are read, the best by a search; none: all
        k: passages of each document that are read
        pool: passages that a search gives to the reranker, if there is one
        concurrency: documents that are read at a time
        most_documents: documents above which consent is asked for; none: never
        form: kind of answer that each document gives
    """

    name: ClassVar[str] = "per-document"
    needs: ClassVar[Needs] = Needs()

    documents: int | None = None
    k: int = 6
    pool: int = 50
    mode: SearchMode = SearchMode.HYBRID
    concurrency: int = 16
    most_documents: int | None = 500
    form: Form = Form.SHORT

    def __post_init__(self) -> None:
        require_min(self, documents=1, k=1, pool=1, concurrency=1, most_documents=1)

    async def answer(self, question: str, run: Run) -> Answer:
        """Ask every document, then say what follows."""
        infos = await list_best(question, run, self.documents, self.mode)
        if len(infos) < 2:
            hits = await run.search(question, k=self.k, pool=self.pool, mode=self.mode)
            return await run.read(question, show_ranked(hits), form=self.form)
        await self._check_size(len(infos), run)
        with run.tokens.reserve_reading():
            asked_each = await _ask_for_question(question, run)
            told = await self._ask_all((asked_each, question), infos, run)
            told = await _judge(asked_each, told, run)
        found = [each for each in told if each.statements]
        failed = [each for each in told if each.problem]
        _report(told, failed, run)
        evidence = sorted((e for each in told for e in each.evidence), key=lambda e: -e.score)
        refused = Answer(question, "", NOT_FOUND, False, evidence=tuple(evidence))
        if not found:
            return finish(refused, Cited("", (), ()), run)
        asked = await self._combine(question, found, run)
        table = tuple(await _tabulate(asked_each, told, run))
        refused = replace(refused, table=table)
        stated, short, computed = self._conclude(found, asked, len(infos), run)
        if not any(each.places for each in stated):  # a reader that cites nothing
            text = " ".join(each.sentence for each in stated)
            return replace(refused, text=text, found=True, short=short or None)
        if not computed:
            return finish(refused, await write_checked(question, stated, run, short), run)
        cited = write_answer(stated, await documents_of(stated, run))
        partly = len(found) < len(infos) and asked.operation in ("sum", "average")
        short = "" if failed or partly else short  # it would be of all documents
        return finish(refused, replace(cited, short=short), run)

    async def _check_size(self, documents: int, run: Run) -> None:
        """Raise `UsageError` if there are many documents and nobody consents."""
        if self.most_documents is None or documents <= self.most_documents:
            return
        what = f"{documents:,} documents are read one by one, with at least a call for each"
        if not await run.consent(what):
            hint = f"--yes or the parameter most_documents={documents} allows it"
            raise UsageError(what, f"most_documents is {self.most_documents:,}", hint)

    async def _ask_all(
        self, asked: tuple[str, str], infos: Sequence[DocumentInfo], run: Run
    ) -> list[Told]:
        """Return what each document says, until the token budget is spent."""
        phase, done, spent = "reading documents", 0, False
        run.emit(Progressed(phase, 0, len(infos)))

        async def ask(info: DocumentInfo) -> Told:
            nonlocal done, spent
            told = Told(info.id, info.full_title, problem="the token budget is spent")
            if not spent:
                try:
                    told = await self._ask_one(asked, info, run)
                except ColligateError as error:
                    spent |= isinstance(error, BudgetExceeded)
                    told = replace(told, problem=str(error))
            done += 1
            run.emit(told)
            run.emit(Progressed(phase, done, len(infos), info.full_title))
            return told

        return await map_concurrent(infos, ask, self.concurrency)

    async def _ask_one(self, asked: tuple[str, str], info: DocumentInfo, run: Run) -> Told:
        """Search and read one document; without a result, what the reader warned of is why."""
        alone, warnings = copy(run), []

        def pass_on(event: Event) -> None:
            if isinstance(event, Noted) and event.warning:
                warnings.append(event.text)
            else:
                run.emit(event)

        alone.trace = Trace([pass_on], keep=False)
        alone.check = None  # the findings of all documents are judged together
        found = [
            await alone.search(query, k=self.k, pool=self.pool, mode=self.mode, documents=[info.id])
            for query in dict.fromkeys(asked)
        ]
        shown = show_ranked(join_rankings(found)[: self.k])
        answer = await alone.read(asked[0], shown, form=self.form)
        problem = ""
        if answer.found:
            for warning in warnings:
                run.warn(f"{info.full_title}: {warning}")
        else:
            problem = "; ".join(warnings)
        stated = split_answer(answer) if answer.found else []
        if answer.found and not stated:
            stated = [Stated(answer.text, ())]
        return Told(
            info.id,
            info.full_title,
            tuple(stated),
            tuple(dict.fromkeys(each.head for each in answer.citations if each.head)),
            tuple(each.quote for each in answer.citations),
            info.language,
            answer.evidence,
            problem,
            answer.short or "",
        )

    async def _combine(self, question: str, found: Sequence[Told], run: Run) -> Combination:
        """Ask the reader what follows, in as many calls as its window needs; or list all."""
        reader = run.model(Role.READER)
        empty = combine_messages(question, [])
        limit = min(_REPLY, (reader.context_tokens or _UNKNOWN) // 3)
        room = await run.room(Role.READER, empty, limit, schema=Combination, last=True)
        most = _UNKNOWN if room is None else room * _SPARE
        tokens = [await reader.count_tokens(each.text) for each in found]
        least = int(most / MOST_FIGURES)  # so that one reply can name all documents of its part
        parts = split_by_tokens([max(each, least) for each in tokens], most)

        async def ask(part: range) -> Combination:
            messages = combine_messages(question, [found[at].text for at in part])
            return (await run.structured(messages, Combination, max_tokens=limit)).value

        try:
            replies = await map_concurrent(parts, ask, self.concurrency)
        except (ModelError, BudgetExceeded) as error:
            run.warn(f"what was found is listed, it may hold more than the answer: {error}")
            return Combination(documents=list(range(1, len(found) + 1)))
        combined = replies[0]
        for reply, part in zip(replies[1:], parts[1:], strict=True):
            combined = combined.join(reply, part.start)
        return combined

    def _conclude(
        self, found: Sequence[Told], asked: Combination, total: int, run: Run
    ) -> tuple[list[Stated], str, bool]:
        """Return the statements of the answer, its short answer, and whether it is computed."""
        meeting = [n - 1 for n in dict.fromkeys(asked.documents) if 0 < n <= len(found)]
        computed = compute(asked, [each.source for each in found])
        if computed is None and asked.operation == "count" and not (asked.least or asked.most):
            computed = Computed("", tuple(sorted(meeting)), tuple(range(len(found))))
        if computed is None:
            if asked.operation != "none":
                run.warn("what was found in the documents cannot be compared: it is listed")
            listed = meeting or range(len(found))
            stated = [each for at in listed for each in found[at].named]
            return stated, asked.short_answer, False
        among = f"of what was found in {len(computed.compared)} of {pluralize(total, 'document')}"
        line, short = _say(asked.operation, computed, found, among)
        if others := [each.title for at, each in enumerate(found) if at not in computed.compared]:
            run.warn(f"not compared: {name_first(others)}")
        places = dict.fromkeys(
            replace(place, how=COMPUTED)
            for at in computed.compared
            for each in found[at].statements
            for place in each.places
        )
        known = {place.span: place for place in places}
        chosen = [
            Stated(each.sentence, tuple(known.get(place.span, place) for place in each.places))
            for at in computed.chosen
            for each in found[at].named
        ]
        return [Stated(line, tuple(places)), *chosen], "" if others else short, True


@dataclass(frozen=True)
class Told(Event):
    """What a document answers to its question; without statements `problem` may say why.

    `heads` are those of the tables that its `quotes` are rows of; `language` is the document's.
    """

    document: str
    title: str
    statements: tuple[Stated, ...] = ()
    heads: tuple[str, ...] = ()
    quotes: tuple[str, ...] = ()
    language: str = "en"
    evidence: tuple[Evidence, ...] = ()
    problem: str = ""
    short: str = ""

    @property
    def named(self) -> list[Stated]:
        """The statements, each after the document's title."""
        return [replace(one, sentence=f"{self.title}: {one.sentence}") for one in self.statements]

    @property
    def text(self) -> str:
        """The answer with the title and the heads of its tables."""
        said = (each.sentence for each in self.statements)
        return " ".join([f"{self.title}:", *said, *(f"({head})" for head in self.heads)])

    @property
    def source(self) -> Source:
        """The words in which a value must stand."""
        said = (each.sentence for each in self.statements)
        return Source((*said, *self.heads, *self.quotes), self.language)

    def line(self) -> str:
        return f"{self.title}: {'an answer' if self.statements else self.problem or 'no answer'}"

    @property
    def stage(self) -> dict[str, Sequence[str]]:
        return {"found": [self.document] if self.statements else []}


async def _ask_for_question(question: str, run: Run) -> str:
    """Return the question to ask of each document, or the question itself."""
    reply = await run.chat(question_messages(question), max_tokens=QUESTION_TOKENS)
    asked = reply.text.strip().partition("\n")[0] or question
    run.emit(Noted(f"asked of each document: {asked}"))
    return asked


async def _judge(asked: str, told: Sequence[Told], run: Run) -> list[Told]:
    """Return what documents say without what their own quotes contradict, judged in one go."""
    stated = [each for one in told for each in one.statements]
    kept, dropped = await judge_stated(asked, stated, run)
    for each in dropped:
        run.warn(each)
    left = {each: each for each in kept}  # equal whatever the verdicts are
    judged = []
    for one in told:
        own = tuple(left[each] for each in one.statements if each in left)
        lost = "its quotes contradict what was found" if one.statements and not own else ""
        judged.append(replace(one, statements=own, problem=one.problem or lost))
    return judged


async def _tabulate(asked: str, told: Sequence[Told], run: Run) -> list[Entry]:
    """Return what each document says as a table with one column."""
    entries = []
    for each in told:
        entry = Entry(each.document, each.title, asked)
        if each.statements and (places := each.statements[0].places):
            text = each.short or " ".join(one.sentence for one in each.statements)
            document = await run.document(each.document)
            place = places[0]
            citation = make_citation(document, place.span, (), place.how, place.meaning)
            entry = replace(entry, text=text, citation=citation)
        entries.append(entry)
    return entries


def _say(operation: str, computed: Computed, found: Sequence[Told], among: str) -> tuple[str, str]:
    """Return the statement of what was computed, and the short answer."""
    titles = [found[at].title for at in computed.chosen]
    if operation in ("sum", "average"):
        return f"{computed.result} is the {operation} {among}.", computed.result
    if operation in ("highest", "lowest"):
        short = f"{'; '.join(titles)}: {computed.result}"
        return f"{short} is the {operation} {among}.", short
    line = f"{computed.result}: " if computed.result else ""
    line += f"{'; '.join(titles) or 'none'} ({among})."
    if operation == "count":
        return f"{len(titles)} of {len(computed.compared)}: {line}", str(len(titles))
    return line, "; ".join(titles)


def _report(told: Sequence[Told], failed: Sequence[Told], run: Run) -> None:
    """Warn of documents that could not be read, and of those without a result."""
    if failed:
        named = name_first([f"{each.title!r}: {each.problem}" for each in failed])
        run.warn(f"{len(failed)} of {len(told)} documents could not be read: {named}")
    silent = [each.title for each in told if not each.statements and not each.problem]
    if silent:
        run.warn(f"nothing was found in {name_first(silent)}")
