"""Citations: from the statements of a reader to verified places in documents.

A statement is cited if a quote of it is located in a passage that was shown. Its numbers and dates
must be in its quotes by value, and a check judges what it means; code judges no wording.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from colligate.concurrency import check_in_thread
from colligate.core.answer import (
    COMPUTED,
    UNCITED,
    Citation,
    Place,
    Stated,
    Verdict,
    describe_table,
    make_citation,
)
from colligate.core.events import Noted
from colligate.core.run import Claim, Quoted, Run
from colligate.documents import Document, Passage, Span
from colligate.documents.compress import locate_quote, visible_text
from colligate.documents.locating import normalise
from colligate.documents.sentences import widen_to_sentences
from colligate.readers.numbers import Calculation, find_missing_values

LONGEST_QUOTE = 1200  # characters: a citation of whole pages shows nothing
MOST_QUOTES = 8  # of one statement
_LONG_ENOUGH_TO_KNOW = 20  # normalised characters: hardly in two places by chance


def _ask_for(schema: dict[str, Any]) -> None:
    """Keep the default of a field out of what a model is asked for."""
    del schema["default"]


class Statement(BaseModel):
    """One sentence of the answer and the words it rests on.

    A quote without a sentence states itself. All fields are asked for; without a passage, 0, the
    quote is looked for in all. Lengths are limits for decoders: longer texts are valid.
    """

    model_config = ConfigDict(
        extra="ignore", json_schema_extra={"required": ["passage", "quote", "sentence"]}
    )

    passage: int = Field(default=0, json_schema_extra=_ask_for)
    quote: str = Field(json_schema_extra={"maxLength": 400})
    sentence: str = Field(json_schema_extra={"maxLength": 600})

    @model_validator(mode="before")
    @classmethod
    def _quote_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and "quote" in value:
            return {"sentence": value["quote"], **value}
        return value


class Quote(BaseModel):
    """Words of a passage; of any if its number is 0."""

    model_config = ConfigDict(extra="ignore", json_schema_extra={"required": ["passage", "quote"]})

    passage: int = Field(default=0, json_schema_extra=_ask_for)
    quote: str = Field(json_schema_extra={"maxLength": 400})


class Joined(BaseModel):
    """One sentence of the answer and the words it rests on, of several passages together.

    A single quote next to the sentence, as in a `Statement`, is accepted too. A sentence without a
    quote quotes itself.
    """

    model_config = ConfigDict(
        extra="ignore", json_schema_extra={"required": ["quotes", "sentence"]}
    )

    quotes: list[Quote] = Field(
        default_factory=list, json_schema_extra={"minItems": 1, "maxItems": MOST_QUOTES}
    )
    sentence: str = Field(json_schema_extra={"maxLength": 600})

    @model_validator(mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        if isinstance(value, dict) and "quotes" not in value and "quote" in value:
            return {**value, "quotes": [{k: value[k] for k in ("passage", "quote") if k in value}]}
        if isinstance(value, dict) and not value.get("quotes") and "sentence" in value:
            return {**value, "quotes": [{"quote": value["sentence"]}]}
        return value


class ComputedStatement(Joined):
    """A statement that may name how its number follows from quoted ones."""

    calculations: list[Calculation] = Field(default_factory=list)


@dataclass(frozen=True)
class Cited:
    """An answer text with numbered marks, the citations behind them, and what was dropped.

    `short` is the answer in a few words, or empty: it is dropped if the cited text contradicts it
    or lacks its numbers.
    """

    text: str
    citations: tuple[Citation, ...]
    dropped: tuple[str, ...]
    short: str = ""


@dataclass(frozen=True, slots=True)
class _Placed:
    """A sentence, its places, the operations that it names, and why quotes were not located."""

    sentence: str
    places: tuple[Place, ...]
    calculations: tuple[Calculation, ...] = ()
    problem: str = ""

    def state(self, verdict: Verdict | None, *, computed: bool = False) -> Stated:
        """Return the statement with a verdict on its places."""
        how = COMPUTED if self.calculations and computed else None
        places = (replace(p, meaning=verdict, how=how or p.how) for p in self.places)
        return Stated(self.sentence, tuple(places))


async def cite(
    question: str,
    statements: Sequence[Statement | Joined],
    passages: Mapping[int, Passage],
    run: Run,
    *,
    short: str = "",
) -> Cited:
    """Locate, check and number the statements, and write them as one text.

    Each statement is followed by the numbers of its citations, `[1]`, counted in the order of first
    use, or by `[uncited]`. The text is empty if no statement has a place. `passages` are those that
    were shown, by number.
    """
    stated, dropped = await verify(question, statements, passages, run)
    if not any(each.places for each in stated):
        return Cited("", (), dropped)
    calculations = tuple(each for one in statements for each in getattr(one, "calculations", ()))
    return await write_checked(question, stated, dropped, run, short, calculations)


async def verify(
    question: str,
    statements: Sequence[Statement | Joined],
    passages: Mapping[int, Passage],
    run: Run,
) -> tuple[list[Stated], tuple[str, ...]]:
    """Return each distinct statement with its places, and why others are dropped or have none.

    A statement whose quotes contradict it is dropped. One that is not surely supported, or has a
    number that its quotes do not hold, keeps its places, marked as unclear.
    """
    placed, claims, lacking = await _place(question, statements, passages, run)
    wanted = [claims[each.sentence] for each in placed if each.places]
    verdicts = await _judge(wanted, run)
    stated, dropped = [], []
    for each in placed:
        verdict = verdicts.get(each.sentence)
        if not each.places:
            dropped.append(f"a citation was dropped: {each.problem}")
        if verdict is Verdict.CONTRADICTED:
            dropped.append(
                f"a statement was dropped: its quotes contradict “{_cut(each.sentence)}”"
            )
            continue
        missing = lacking.get(each.sentence)
        if missing:
            run.emit(Noted(f"no quote has {', '.join(missing)} of “{_cut(each.sentence)}”"))
        stated.append(each.state(Verdict.UNCLEAR if missing else verdict, computed=not missing))
    return stated, tuple(dropped)


async def _place(
    question: str,
    statements: Sequence[Statement | Joined],
    passages: Mapping[int, Passage],
    run: Run,
) -> tuple[list[_Placed], dict[str, Claim], dict[str, list[str]]]:
    """Return the statements with their places, and by sentence their claims, and the numbers and
    dates that their quotes do not hold."""
    documents = await run.documents_of(list(passages.values()))
    placed = await check_in_thread(_place_all, statements, passages, documents)
    claims = {each.sentence: _claim(question, each, documents, passages) for each in placed}
    lacking = await check_in_thread(_find_all_missing, placed, claims, documents)
    return placed, claims, lacking


async def _judge(claims: Sequence[Claim], run: Run) -> dict[str, Verdict | None]:
    """Return the verdict on each statement; a copy of its quote needs none to be supported."""
    verdicts: dict[str, Verdict | None] = {
        each.statement: Verdict.SUPPORTED for each in claims if _is_copy(each)
    }
    wanted = [each for each in claims if each.statement not in verdicts]
    if run.check is not None and wanted:
        judged = await run.check.judge(wanted, run)
        verdicts |= dict(zip((each.statement for each in wanted), judged, strict=True))
    return verdicts


async def locate_statements(
    question: str,
    statements: Sequence[Statement | Joined],
    passages: Sequence[Passage],
    run: Run,
) -> list[Stated]:
    """Return the statements of an earlier step whose quotes are located; the trace names others.

    They are notes of the method: only what the reader states at the end is judged.
    """
    placed, _, lacking = await _place(question, statements, number_passages(passages), run)
    for each in placed:
        if not each.places:
            run.emit(Noted(f"a citation was dropped: {each.problem}"))
    return [
        each.state(Verdict.UNCLEAR if lacking[each.sentence] else None)
        for each in placed
        if each.places
    ]


async def judge_stated(
    question: str, stated: Sequence[Stated], run: Run
) -> tuple[list[Stated], tuple[str, ...]]:
    """Return statements of earlier steps as an answer may have them, and why others are dropped."""
    documents = {
        place.span.document_id: await run.document(place.span.document_id)
        for each in stated
        for place in each.places
    }
    claims = [
        Claim(
            each.sentence,
            tuple(
                _quote(document, place.span, document.slice(place.span))
                for place in each.places
                for document in [documents[place.span.document_id]]
            ),
            question,
        )
        for each in stated
    ]
    verdicts = await _judge(claims, run)
    kept, dropped = [], []
    for each in stated:
        verdict = verdicts.get(each.sentence)
        if verdict is Verdict.CONTRADICTED:
            dropped.append(
                f"a statement was dropped: its quotes contradict “{_cut(each.sentence)}”"
            )
            continue
        places = (replace(p, meaning=p.meaning or verdict) for p in each.places)
        kept.append(Stated(each.sentence, tuple(places)))
    return kept, tuple(dropped)


def number_passages(passages: Sequence[Passage]) -> dict[int, Passage]:
    """Return passages by their place, from 1."""
    return dict(enumerate(passages, 1))


async def write_checked(
    question: str,
    stated: Sequence[Stated],
    dropped: tuple[str, ...],
    run: Run,
    short: str,
    calculations: Sequence[Calculation] = (),
) -> Cited:
    """Write statements as one text; leave out a short answer that they do not hold.

    Its numbers must be in them or in their quotes by value. If its words are in neither, the check
    judges it.
    """
    ids = {place.span.document_id for each in stated for place in each.places}
    documents = {name: await run.document(name) for name in ids}
    cited = write_answer(stated, documents, dropped)
    short = remove_model_marks(short)
    if not short or not cited.citations:
        return cited
    quotes = tuple(
        _quote(documents[each.span.document_id], each.span, each.quote) for each in cited.citations
    )
    said = Quoted("", " ".join(each.sentence for each in stated if each.places))
    claim = Claim(short, (said, *quotes), question)
    problem = ""
    lacking = find_missing_values(
        short,
        _sources(claim),
        given=question,
        calculations=calculations,
        language=documents[cited.citations[0].span.document_id].language,
    )
    if lacking:
        problem = f"nothing cited has {', '.join(lacking)}"
    elif run.check is not None and not _is_copy(claim):
        [verdict] = await run.check.judge([claim], run)
        problem = "what is cited contradicts it" if verdict is Verdict.CONTRADICTED else ""
    if problem:
        why = f"the short answer “{_cut(short)}” is left out: {problem}"
        return replace(cited, dropped=(*cited.dropped, why))
    return replace(cited, short=short)


def write_answer(
    stated: Sequence[Stated], documents: Mapping[str, Document], dropped: tuple[str, ...] = ()
) -> Cited:
    """Join the statements, number their marks, and record the place of each in the answer."""
    text = ""
    stretches: dict[Place, list[tuple[int, int]]] = {}
    meanings: dict[Place, set[Verdict | None]] = {}
    for each in stated:
        text += " " if text else ""
        stretch = len(text), len(text) + len(each.sentence)
        for place in each.places:
            stretches.setdefault(place, []).append(stretch)
            meanings.setdefault(place, set()).add(place.meaning)
        marks = [f"[{list(stretches).index(place) + 1}]" for place in each.places]
        text += f"{each.sentence} {''.join(marks) or UNCITED}"
    citations = [
        make_citation(
            documents[place.span.document_id],
            place.span,
            answer_spans,
            place.how,
            place.meaning if len(meanings[place]) == 1 else Verdict.UNCLEAR,
        )
        for place, answer_spans in stretches.items()
    ]
    return Cited(text, tuple(citations), dropped)


def _place_all(
    statements: Sequence[Statement | Joined],
    passages: Mapping[int, Passage],
    documents: Mapping[str, Document],
) -> list[_Placed]:
    """Locate the quotes of all statements; a repeated sentence has the places of all."""
    found: dict[str, _Placed] = {}
    for statement in statements:
        sentence = remove_model_marks(statement.sentence)
        if not sentence:
            continue
        quotes: Sequence[Statement | Quote] = (
            statement.quotes if isinstance(statement, Joined) else [statement]
        )
        located = _locate_all(quotes, passages, documents)
        places = [place for place in located if place is not None]
        lost = next((q for q, place in zip(quotes, located, strict=True) if place is None), None)
        known = found.get(sentence, _Placed(sentence, ()))
        found[sentence] = _Placed(
            sentence,
            tuple(dict.fromkeys([*known.places, *places])),
            (*known.calculations, *getattr(statement, "calculations", ())),
            known.problem or (_explain(lost, passages) if lost is not None else ""),
        )
    return list(found.values())


def _explain(quoted: Statement | Quote, passages: Mapping[int, Passage]) -> str:
    quote = f"the quote “{_cut(quoted.quote)}”"
    if not quoted.passage:
        return f"no passage holds {quote}"
    if quoted.passage not in passages:
        return f"passage {quoted.passage} does not exist"
    return f"passage {quoted.passage} does not hold {quote}"


def _locate_all(
    quotes: Sequence[Statement | Quote],
    passages: Mapping[int, Passage],
    documents: Mapping[str, Document],
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


def _locate(
    quoted: Statement | Quote, passages: Mapping[int, Passage], documents: Mapping[str, Document]
) -> Place | None:
    """Return the sentences around a quote, first in the passage that it names.

    Models copy well and count badly, so a quote that is word for word in exactly one other passage
    is taken from there, a long one from the first of several.
    """
    named = passages.get(quoted.passage)
    if named is not None and (place := _locate_in(named, quoted.quote, documents)):
        return place
    others = list(
        dict.fromkeys(
            place
            for passage in passages.values()
            if passage is not named
            and (place := _locate_in(passage, quoted.quote, documents, verbatim=True))
        )
    )
    long = len(normalise(quoted.quote).text) >= _LONG_ENOUGH_TO_KNOW
    return others[0] if len(others) == 1 or (others and long) else None


def _locate_in(
    passage: Passage, quote: str, documents: Mapping[str, Document], *, verbatim: bool = False
) -> Place | None:
    """Return the whole sentences around a quote in a passage."""
    document = documents[passage.document_id]
    location = locate_quote(quote, document, passage, longest=LONGEST_QUOTE, verbatim=verbatim)
    if location is None:
        return None
    span = widen_to_sentences(document, location.span, passage.span)
    return Place(span if len(span) <= LONGEST_QUOTE else location.span, location.how.value)


def _claim(
    question: str,
    placed: _Placed,
    documents: Mapping[str, Document],
    passages: Mapping[int, Passage],
) -> Claim:
    """Return a sentence with what a reader saw of its places."""
    quotes = []
    for place in placed.places:
        document = documents[place.span.document_id]
        passage = next(p for p in passages.values() if p.span.contains(place.span))
        quotes.append(_quote(document, place.span, visible_text(place.span, document, passage)))
    return Claim(placed.sentence, tuple(quotes), question)


def _quote(document: Document, span: Span, text: str) -> Quoted:
    """Return words under their title and headings, and for a row the head and unit of its table."""
    title = " › ".join(dict.fromkeys([document.title, *document.section_of(span)]))
    head = describe_table(document, span)
    return Quoted(title, f"{head}\n{text}" if head else text)


def _find_all_missing(
    placed: Sequence[_Placed], claims: Mapping[str, Claim], documents: Mapping[str, Document]
) -> dict[str, list[str]]:
    """Return by sentence the numbers and dates that its quotes do not hold."""
    return {
        each.sentence: find_missing_values(
            each.sentence,
            _sources(claims[each.sentence]),
            given=claims[each.sentence].question,
            calculations=each.calculations,
            language=documents[each.places[0].span.document_id].language,
        )
        for each in placed
        if each.places
    }


def _sources(claim: Claim) -> list[str]:
    return [f"{quote.title}\n{quote.text}" for quote in claim.quotes]


def _is_copy(claim: Claim) -> bool:
    """Return whether a statement is copied from its quotes, so that there is nothing to judge."""
    said = normalise(claim.statement).text.strip(".")
    return any(said in normalise(quote.text).text for quote in claim.quotes)


# Of up to three digits: "[2019] UKSC 5" is the name of a judgement.
_MARK = re.compile(r"\s*\[(?:\d{1,3}(?:\s*,\s*\d{1,3})*|uncited)\]")


def remove_model_marks(sentence: str) -> str:
    """Remove the model's own citation marks: only ours are checked."""
    return " ".join(_MARK.sub("", sentence).split())


def find_grounds(statements: Sequence[Stated], passages: Sequence[Passage]) -> Iterator[Passage]:
    """Yield the passages that hold a place of one of the statements, in their order."""
    spans = [place.span for each in statements for place in each.places]
    return (each for each in passages if any(each.span.contains(span) for span in spans))


def _cut(text: str, length: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"
