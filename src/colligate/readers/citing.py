"""Citations: from the statements of a reader to verified places in documents.

A statement is cited if a quote of it is located in a passage that was shown. Its numbers and dates
must be in its quotes by value, and a check judges what it means; code judges no wording.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, Field, model_validator

from colligate.core.answer import (
    COMPUTED,
    UNCITED,
    Answer,
    Citation,
    Claim,
    Place,
    Quoted,
    Stated,
    Verdict,
    describe_table,
    make_citation,
)
from colligate.core.events import Answered, Drafted, Noted
from colligate.core.run import Run
from colligate.documents import Document, Passage, Span
from colligate.documents.compress import locate_quote, visible_text
from colligate.documents.locating import normalise
from colligate.documents.sentences import blank_notes, widen_to_sentences
from colligate.readers.numbers import Calculation, Operation, find_missing_values

LONGEST_QUOTE = 1200  # characters: a citation of whole pages shows nothing
MOST_QUOTES = 8  # of one statement
_LONG_ENOUGH_TO_KNOW = 20  # normalised characters: hardly in two places by chance


def _ask_for(schema: dict[str, Any]) -> None:
    """Keep the default of a field out of what a model is asked for."""
    del schema["default"]


class Quote(BaseModel, json_schema_extra={"required": ["passage", "quote"]}):
    """Words of a passage; of any if its number is 0."""

    passage: int = Field(default=0, json_schema_extra=_ask_for)
    quote: str = Field(json_schema_extra={"maxLength": 400})


class Statement(Quote, json_schema_extra={"required": ["passage", "quote", "sentence"]}):
    """One sentence of the answer and the words it rests on.

    A quote without a sentence states itself. All fields are asked for; without a passage, 0, the
    quote is looked for in all. Lengths are limits for decoders: longer texts are valid.
    """

    sentence: str = Field(json_schema_extra={"maxLength": 600})

    @model_validator(mode="before")
    @classmethod
    def _quote_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and "quote" in value:
            return {"sentence": value["quote"], **value}
        return value

    @property
    def quotes(self) -> Sequence[Quote]:
        """The quote that it rests on."""
        return (self,)


class ComputedStatement(BaseModel, json_schema_extra={"required": ["quotes", "sentence"]}):
    """One sentence of the answer and the words it rests on, of several passages together.

    It may name how its number follows from quoted ones. A single quote next to the sentence, as in
    a `Statement`, is accepted too. A sentence without a quote quotes itself.
    """

    quotes: list[Quote] = Field(
        default_factory=list, json_schema_extra={"minItems": 1, "maxItems": MOST_QUOTES}
    )
    sentence: str = Field(json_schema_extra={"maxLength": 600})
    calculations: list[Calculation] = Field(default_factory=list)

    @model_validator(mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        if isinstance(value, dict) and not value.get("quotes") and "sentence" in value:
            words = value.get("quote") or value["sentence"]
            return {**value, "quotes": [{"passage": value.get("passage", 0), "quote": words}]}
        return value


Statements = Sequence[Statement | ComputedStatement]
Documents = Mapping[str, Document]
Passages = Mapping[int, Passage]
"""The passages that were shown, by their numbers."""


@dataclass(frozen=True)
class Cited:
    """An answer text with numbered marks, its citations, what was dropped, and the short answer."""

    text: str
    citations: tuple[Citation, ...]
    dropped: tuple[str, ...]
    short: str = ""


@dataclass(frozen=True, slots=True)
class Placed:
    """A sentence with its places: what is judged, and a quote and values that were not found."""

    claim: Claim
    places: tuple[Place, ...] = ()
    calculations: tuple[Calculation, ...] = ()
    lost: str = ""
    missing: tuple[str, ...] = ()

    @property
    def problem(self) -> str:
        """Why the sentence has no place."""
        return (
            f"a citation was dropped: no single passage is known for the quote “{_cut(self.lost)}”"
        )

    def state(self) -> Stated:
        """Return the statement; without all its numbers and dates its places are unclear."""
        meaning = Verdict.UNCLEAR if self.missing else None
        how = COMPUTED if self.calculations and not self.missing else None
        places = (replace(place, meaning=meaning, how=how or place.how) for place in self.places)
        return Stated(self.claim.statement, tuple(places))


async def cite(
    question: str, statements: Statements, passages: Passages, run: Run, *, short: str = ""
) -> Cited:
    """Locate, check and number the statements, and write them as one text.

    Each statement is followed by the numbers of its citations, `[1]`, counted in the order of first
    use, or by `[uncited]`. The text is empty if no statement has a place. `passages` are those that
    were shown, by number.
    """
    placed = await _place(question, statements, passages, run)
    for each in placed:
        if each.missing:
            said = _cut(each.claim.statement)
            run.emit(Noted(f"no quote has {', '.join(each.missing)} of “{said}”"))
    stated = {each.state(): each for each in placed}
    cited = await write_checked(
        question,
        list(stated),
        run,
        short,
        claims={one: each.claim for one, each in stated.items() if each.places},
        calculations=[calculation for each in placed for calculation in each.calculations],
    )
    lost = tuple(each.problem for each in placed if not each.places)
    return replace(cited, dropped=(*lost, *cited.dropped))


async def locate_statements(
    question: str, statements: Statements, passages: Sequence[Passage], run: Run
) -> list[Stated]:
    """Return the statements of an earlier step that have places: notes, which are not judged."""
    placed = await _place(question, statements, dict(enumerate(passages, 1)), run)
    for each in placed:
        if not each.places:
            run.emit(Noted(each.problem))
    return [each.state() for each in placed if each.places]


async def write_checked(
    question: str,
    stated: Sequence[Stated],
    run: Run,
    short: str = "",
    *,
    claims: Mapping[Stated, Claim] | None = None,
    calculations: Sequence[Calculation] = (),
) -> Cited:
    """Judge statements and the short answer in one go, and write what is kept as one text.

    `claims` are of the statements that are not judged yet: one whose quotes contradict it is
    dropped, and one that is not surely supported is marked as unclear. The short answer is left out
    if its numbers are not cited by value, or what is cited contradicts it.
    """
    if not any(each.places for each in stated):
        return Cited("", (), ())
    claims, short = claims or {}, remove_model_marks(short)
    documents = await documents_of(stated, run)
    about = _claim_short(question, short, stated, documents)
    cited_documents = Calculation(Operation.COUNT, _title_documents(stated, documents))
    lacking = find_missing_values(
        short,
        _sources(about),
        given=question,
        calculations=[*calculations, cited_documents],  # "seven: ..." of seven documents
        language=next(iter(documents.values())).language,
    )
    judged = [about] if short and not lacking else []
    verdicts = await judge_claims([*claims.values(), *judged], run)
    kept, dropped = _keep(stated, claims, verdicts)
    if dropped:  # what is left is less than the short answer was compared with
        left = {each.sentence for each in kept}
        for index, each in enumerate(stated):
            if run.live and each.sentence not in left:
                why = "its quotes contradict it"
                run.emit(Drafted(index, each.sentence, "struck", why=why))
        rest = await write_checked(question, kept, run, short, calculations=calculations)
        return replace(rest, dropped=(*dropped, *rest.dropped))
    cited = write_answer(kept, documents)
    problem = f"nothing cited has {', '.join(lacking)}" if lacking else ""
    if verdicts.get(about) is Verdict.CONTRADICTED:
        problem = "what is cited contradicts it"
    if problem:
        return replace(cited, dropped=(f"the short answer “{_cut(short)}” is left out: {problem}",))
    return replace(cited, short=short)


async def judge_stated(
    question: str, stated: Sequence[Stated], run: Run
) -> tuple[list[Stated], tuple[str, ...]]:
    """Return statements of earlier steps that an answer may have, and why others are dropped."""
    documents = await documents_of(stated, run)
    claims = {
        each: Claim(each.sentence, _quote_places(each.places, documents), question)
        for each in stated
        if any(place.meaning is None for place in each.places)
    }
    return _keep(stated, claims, await judge_claims(list(claims.values()), run))


def _keep(
    stated: Sequence[Stated],
    claims: Mapping[Stated, Claim],
    verdicts: Mapping[Claim, Verdict | None],
) -> tuple[list[Stated], tuple[str, ...]]:
    """Return the statements that no verdict contradicts, marked, and why others are dropped."""
    kept, dropped = [], []
    for each in stated:
        verdict = verdicts.get(claims[each]) if each in claims else None
        if verdict is Verdict.CONTRADICTED:
            said = _cut(each.sentence)
            dropped.append(f"a statement was dropped: its quotes contradict “{said}”")
        else:
            places = (replace(place, meaning=place.meaning or verdict) for place in each.places)
            kept.append(replace(each, places=tuple(places)))
    return kept, tuple(dropped)


async def judge_claims(claims: Sequence[Claim], run: Run) -> dict[Claim, Verdict | None]:
    """Return the verdict on each claim; a copy of its quote needs none to be supported."""
    verdicts: dict[Claim, Verdict | None] = {
        each: Verdict.SUPPORTED for each in claims if _is_copy(each)
    }
    wanted = [each for each in dict.fromkeys(claims) if each not in verdicts]
    if run.check is not None and wanted:
        with run.meter.step("check"):
            verdicts |= zip(wanted, await run.check.judge(wanted, run), strict=True)
    return verdicts


def write_answer(stated: Sequence[Stated], documents: Documents, between: str = " ") -> Cited:
    """Join the statements, number their marks, and record the place of each in the answer."""
    text = ""
    supported: list[tuple[Place, tuple[int, int]]] = []
    for each in stated:
        text += between if text else ""
        stretch = len(text), len(text) + len(each.sentence)
        supported += [(place, stretch) for place in each.places]
        numbered = list(dict.fromkeys(place for place, _ in supported))
        marks = [f"[{numbered.index(place) + 1}]" for place in each.places]
        text += f"{each.sentence} {''.join(marks) or UNCITED}"
    return Cited(text, cite_places(supported, documents), ())


def cite_places(
    supported: Sequence[tuple[Place, tuple[int, int]]], documents: Documents
) -> tuple[Citation, ...]:
    """Return a citation for each place, in the order of first use.

    `supported` are places, each with a stretch of the answer that it supports.
    """
    stretches: dict[Place, list[tuple[int, int]]] = {}
    meanings: dict[Place, set[Verdict | None]] = {}
    for place, stretch in supported:
        stretches.setdefault(place, []).append(stretch)
        meanings.setdefault(place, set()).add(place.meaning)
    return tuple(
        make_citation(
            documents[place.span.document_id],
            place.span,
            answer_spans,
            place.how,
            place.meaning if len(meanings[place]) == 1 else Verdict.UNCLEAR,
        )
        for place, answer_spans in stretches.items()
    )


def finish(refused: Answer, cited: Cited, run: Run) -> Answer:
    """Record the answer and return it; without a citation it is a refusal."""
    for each in cited.dropped:
        run.warn(each)
    spans = tuple(citation.span for citation in cited.citations)
    run.emit(Answered(bool(spans), cited.text, spans, cited.dropped))
    if not spans:
        return refused
    short = cited.short or None
    return replace(refused, text=cited.text, found=True, short=short, citations=cited.citations)


async def documents_of(stated: Sequence[Stated], run: Run) -> dict[str, Document]:
    """Return the documents of all places by id, in the order of the citations."""
    names = dict.fromkeys(place.span.document_id for each in stated for place in each.places)
    return {name: await run.document(name) for name in names}


async def _place(
    question: str, statements: Statements, passages: Passages, run: Run
) -> list[Placed]:
    """Return each distinct statement with its places, its claim, and what of it is missing."""
    documents = await run.documents_of(list(passages.values()))
    same: dict[str, list[Statement | ComputedStatement]] = {}
    for statement in statements:
        if sentence := remove_model_marks(statement.sentence):
            same.setdefault(sentence, []).append(statement)

    def place() -> list[Placed]:
        return [
            place_sentence(Claim(sentence, (), question), said, passages, documents)
            for sentence, said in same.items()
        ]

    return await asyncio.to_thread(place)


def place_sentence(
    claim: Claim, said: Statements, passages: Passages, documents: Documents
) -> Placed:
    """Locate the quotes of statements of one sentence; the claim has them as a reader saw them."""
    located: list[tuple[Quote, Place | None]] = []
    for each in said:
        found = _locate_all(each.quotes, passages, documents)
        located += zip(each.quotes, found, strict=True)
    places = tuple(dict.fromkeys(place for _, place in located if place is not None))
    calculations = tuple(c for each in said for c in getattr(each, "calculations", ()))
    if not places:
        return Placed(claim, (), calculations, next((each.quote for each, _ in located), ""))
    quotes = []
    for place in places:
        document = documents[place.span.document_id]
        passage = next(p for p in passages.values() if p.span.contains(place.span))
        quotes.append(_quote(document, place.span, visible_text(place.span, document, passage)))
    claim = replace(claim, quotes=tuple(quotes))
    units = [documents[place.span.document_id].printed_unit(place.span) for place in places]
    missing = find_missing_values(
        claim.statement,
        [*_sources(claim), *filter(None, units)],
        given=claim.question,
        calculations=calculations,
        language=documents[places[0].span.document_id].language,
    )
    return Placed(claim, places, calculations, missing=tuple(missing))


def _locate_all(
    quotes: Sequence[Quote], passages: Passages, documents: Documents
) -> list[Place | None]:
    """Return the places of the quotes of one statement.

    Words that stand in several passages, as "(in thousands)", are those beside its other quotes.
    """
    located = [_locate(each, passages, documents) for each in quotes]
    spans = [place.span for place in located if place is not None]
    if len(spans) in (0, len(quotes)):
        return located
    beside = {n: p for n, p in passages.items() if any(map(p.span.contains, spans))}
    pairs = zip(quotes, located, strict=True)
    return [place or _locate(each, beside, documents) for each, place in pairs]


def _locate(quoted: Quote, passages: Passages, documents: Documents) -> Place | None:
    """Return the sentences around a quote, first in the passage that it names.

    Models copy well and count badly, so a quote that is word for word in exactly one other passage
    is taken from there, a long one from the first of several.
    """
    named = passages.get(quoted.passage)
    if named is not None and (place := _locate_in(named, quoted.quote, documents)):
        return place
    places = (
        _locate_in(passage, quoted.quote, documents, verbatim=True)
        for passage in passages.values()
        if passage is not named
    )
    others = list(dict.fromkeys(filter(None, places)))
    long = len(normalise(quoted.quote).text) >= _LONG_ENOUGH_TO_KNOW
    return others[0] if len(others) == 1 or (others and long) else None


def _locate_in(
    passage: Passage, quote: str, documents: Documents, *, verbatim: bool = False
) -> Place | None:
    """Return the whole sentences around a quote in a passage."""
    document = documents[passage.document_id]
    location = locate_quote(quote, document, passage, longest=LONGEST_QUOTE, verbatim=verbatim)
    if location is None:
        return None
    span = widen_to_sentences(document, location.span, passage.span)
    return Place(span if len(span) <= LONGEST_QUOTE else location.span, location.how.value)


def _claim_short(
    question: str, short: str, stated: Sequence[Stated], documents: Documents
) -> Claim:
    """Return the short answer with the statements and all that they cite."""
    said = Quoted("", " ".join(each.sentence for each in stated if each.places))
    places = dict.fromkeys(place for each in stated for place in each.places)
    return Claim(short, (said, *_quote_places(places, documents)), question)


def _title_documents(stated: Sequence[Stated], documents: Documents) -> tuple[str, ...]:
    """Return the titles of the documents that statements cite, one for each."""
    spans = {place.span.document_id: place.span for each in stated for place in each.places}
    return tuple(documents[name].passage(span).full_title for name, span in spans.items())


def _quote_places(places: Iterable[Place], documents: Documents) -> tuple[Quoted, ...]:
    found = ((documents[place.span.document_id], place.span) for place in places)
    return tuple(_quote(document, span, document.slice(span)) for document, span in found)


def _quote(document: Document, span: Span, text: str) -> Quoted:
    """Return words under their title and headings, and for a row the head and unit of its table."""
    place, head = document.passage(span), describe_table(document, span)
    headings = (heading for heading in place.section if heading != place.title)
    title = " › ".join(dict.fromkeys([place.full_title, *headings]))
    return Quoted(title, f"{head}\n{text}" if head else text)


def _sources(claim: Claim) -> list[str]:
    return [f"{quote.title}\n{quote.text}" for quote in claim.quotes]


def _is_copy(claim: Claim) -> bool:
    """Return whether a statement is copied from its quotes, so that there is nothing to judge."""
    said = normalise(claim.statement).text.strip(".")
    texts = (each for quote in claim.quotes for each in (quote.text, blank_notes(quote.text)))
    return any(said in normalise(text).text for text in texts)


# Of up to three digits: "[2019] UKSC 5" is the name of a judgement.
_MARK = re.compile(r"\s*\[(?:\d{1,3}(?:\s*,\s*\d{1,3})*|uncited)\]")


def remove_model_marks(sentence: str) -> str:
    """Remove the model's own citation marks: only ours are checked."""
    return " ".join(_MARK.sub("", sentence).split())


def _cut(text: str, length: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"
