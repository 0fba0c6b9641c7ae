"""Citations: from the claims of a reader to verified places in documents.

A statement keeps its citation only if its quote is located in the passage it names, the sentences
around it have the words of what it claims, and do not say the opposite. Nothing is cited because it
is similar.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from colligate.core.answer import (
    COMPUTED as COMPUTED,
)
from colligate.core.answer import (
    NOT_FOUND as NOT_FOUND,
)
from colligate.core.answer import (
    UNCITED as UNCITED,
)
from colligate.core.answer import (
    Citation as Citation,
)
from colligate.core.answer import (
    Evidence as Evidence,
)
from colligate.core.answer import (
    Place as Place,
)
from colligate.core.answer import (
    Stated as Stated,
)
from colligate.core.answer import (
    make_citation as make_citation,
)
from colligate.core.compress import locate_quote, visible_text
from colligate.core.computing import check_comparison, recompute, remove_computed
from colligate.core.meaning import YES, Meaning, changes_year, check_meaning, check_short_answer
from colligate.core.orders import commands_reader, has_commands_around
from colligate.core.support import (
    NEAR,
    QUOTED,
    Support,
    find_capitalised,
    find_new_words,
    find_supporting_sentences,
    has_all_numbers,
    is_number,
    split_content_words,
    support,
    widen_to_sentences,
)
from colligate.documents import Document, Passage, Span
from colligate.documents.languages import detect_language
from colligate.documents.locating import normalise
from colligate.documents.sentences import sentence_spans
from colligate.documents.tree import Kind
from colligate.models import Verifier

TITLE = "title"
"""How a place was found that answers for its document, whose title is the short answer."""
OPPOSITE = "say the opposite of"
"""What the reason of a dropped citation says if its meaning is contradicted."""

MOST_QUOTES = 6  # of one sentence: as many things can be counted
LONGEST_QUOTE = 1200  # characters: a citation of whole pages shows nothing
_AROUND = 110  # characters before and after a short answer that are stated of a long sentence
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
    quote: str = Field(json_schema_extra={"maxLength": 200})
    sentence: str = Field(json_schema_extra={"maxLength": 200})

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
    quote: str = Field(json_schema_extra={"maxLength": 130})


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
    sentence: str = Field(json_schema_extra={"maxLength": 200})

    @model_validator(mode="before")
    @classmethod
    def _single(cls, value: Any) -> Any:
        if isinstance(value, dict) and "quotes" not in value and "quote" in value:
            return {**value, "quotes": [{k: value[k] for k in ("passage", "quote") if k in value}]}
        if isinstance(value, dict) and not value.get("quotes") and "sentence" in value:
            return {**value, "quotes": [{"quote": value["sentence"]}]}
        return value


@dataclass(frozen=True)
class Cited:
    """An answer text with numbered marks, the citations behind them, and what was dropped.

    `short` is the answer in a few words, or empty: it is dropped if the text and its sources do not
    say it.
    """

    text: str
    citations: tuple[Citation, ...]
    dropped: tuple[str, ...]
    short: str = ""


def cite(
    question: str,
    statements: Sequence[Statement | Joined],
    passages: Sequence[Passage],
    documents: Mapping[str, Document],
    *,
    short: str = "",
    found: bool = True,
    verifier: Verifier | None = None,
) -> Cited:
    """Resolve each statement to its places in the documents, and write them as one text.

    Each statement is followed by the numbers of its citations, `[1]`, counted in the order of first
    use, or by `[uncited]`. A repeated statement is written once, with all its places. If no
    statement has a place the text is the sentence that holds the short answer, or empty; it is
    empty too if the model says that it found nothing.
    """
    stated, dropped = resolve(question, statements, passages, documents, verifier)
    if not any(each.places for each in stated):
        looked_up = short if found else ""
        within = question, passages, documents
        answering, problem = find_short_answer(looked_up, *within, verifier=verifier)
        if not (answering or problem) and (new := find_new_words(looked_up, question)):
            short = new
            answering, problem = find_short_answer(new, *within, verifier=verifier)
        dropped += (problem,) if problem else ()
        if answering is None:
            return Cited("", (), dropped)
        stated, verifier = [answering], None  # it was asked
    return write_answer(
        stated, documents, dropped, short=short, question=question, verifier=verifier
    )


def resolve(
    question: str,
    statements: Sequence[Statement | Joined],
    passages: Sequence[Passage],
    documents: Mapping[str, Document],
    verifier: Verifier | None = None,
) -> tuple[list[Stated], tuple[str, ...]]:
    """Return each distinct statement with its places, and why those without places have none."""
    checker = _Checker(question, passages, documents, verifier)
    placed: dict[str, list[Place]] = {}
    dropped: dict[str, list[str]] = {}
    for statement in statements:
        sentence = remove_model_marks(statement.sentence)
        if not sentence:
            continue
        places = placed.setdefault(sentence, [])
        if isinstance(statement, Joined):
            found, problem = checker.place_joined(sentence, statement.quotes)
        else:
            place, problem = checker.place(sentence, statement)
            found = [place] if place is not None else []
        if not found:
            quotes = statement.quotes if isinstance(statement, Joined) else [statement]
            found = checker.place_computed(sentence, quotes)
        if not found:
            dropped.setdefault(sentence, []).append(problem)
        places += [place for place in found if place not in places]
    stated = [Stated(sentence, tuple(places)) for sentence, places in placed.items()]
    return stated, tuple(problem for found in dropped.values() for problem in found)


def find_short_answer(
    short: str,
    question: str,
    passages: Sequence[Passage],
    documents: Mapping[str, Document],
    *,
    alone: bool = False,
    titled: bool = False,
    verifier: Verifier | None = None,
) -> tuple[Stated | None, str]:
    """Return the sentence of the passages that answers the question with these words, or None.

    With None is said if all such sentences say the opposite. It holds the short answer word for
    word and, with its title and headings, enough of the words of question and answer; of several
    the one with most. If a model read the passage `alone`, that shows that it is about the
    question, and the short answer is enough. A row of a table does not count if the question names
    another row. Of a long sentence the part around the short answer is stated. With `titled` words
    of the title answer for the document (`TITLE`), if a sentence has enough of the question's
    words: "Which of these leases end in May?"
    """
    checker = _Checker(question, passages, documents, verifier)
    rated = [
        (found.whole, passage, span)
        for passage in passages
        for span, found in checker.rate_sentences(
            question, short, passage, titled=titled and _is_title(short, passage)
        )
        if alone or found.enough(NEAR)
    ]
    best = sorted(rated, key=lambda each: -each[0])
    for _, passage, span in best if verifier is None else best[:_VERIFIED]:
        if checker.is_of_another_row(span, passage):
            continue
        sentence = remove_model_marks(visible_text(span, documents[span.document_id], passage))
        if titled and _is_title(short, passage):
            return Stated(sentence, (Place(span, TITLE),)), ""
        if place := checker.read_short(Place(span, "short answer"), short):
            return Stated(_cut_around(short, sentence), (place,)), ""
    opposite = f"a citation was dropped: the words of the passage {OPPOSITE} “{_cut(short)}”"
    return None, opposite if rated else ""


_VERIFIED = 3  # sentences about which a verifier is asked, each at most one pass


def _cut_around(short: str, sentence: str) -> str:
    """Return a sentence, or the part of a long one that is around the short answer."""
    if len(sentence) <= 2 * _AROUND + len(short):
        return sentence
    at = max(0, sentence.casefold().find(short.casefold()))
    start = sentence.rfind(" ", 0, max(0, at - _AROUND)) + 1
    end = sentence.find(" ", at + len(short) + _AROUND)
    end = len(sentence) if end < 0 else end
    return "…" * (start > 0) + sentence[start:end] + "…" * (end < len(sentence))


@dataclass(frozen=True, slots=True)
class _Checker:
    """Finds the places that support the sentences of an answer."""

    question: str
    passages: Sequence[Passage]
    documents: Mapping[str, Document]
    verifier: Verifier | None = None
    # What was compared before: small models state and quote the same several times.
    _meanings: dict[tuple[str, str, str], Meaning] = field(default_factory=dict)

    def place(self, sentence: str, quoted: Statement | Quote) -> tuple[Place | None, str]:
        """Return the place of a sentence with one quote, or why it has none.

        The quote in the passage it names comes first. Small models copy well and count badly, so a
        quote found word for word in exactly one other passage is taken from there, a long quote
        from the best of several. Last come sentences of the named passage that say the same
        unquoted.
        """
        named = self._named(quoted)
        problem = f"passage {quoted.passage} does not exist"
        if not quoted.passage:
            problem = f"no passage holds the quote “{_cut(quoted.quote)}”"
        if named is not None:
            place = self._locate(quoted.quote, named)
            problem = f"passage {quoted.passage} does not hold the quote “{_cut(quoted.quote)}”"
            if place is None and commands_reader(f"{quoted.quote}\n{named.text}"):
                problem = f"the passage instructs its reader what to answer: “{_cut(quoted.quote)}”"
            if place is not None:
                problem = f"the quoted words do not support “{_cut(sentence)}”"
            if place and self._supports(place, named, sentence):
                if read := self._read_meaning(place, sentence):
                    return read, ""
                problem = f"the quoted words {OPPOSITE} “{_cut(sentence)}”"
        elsewhere = [
            read
            for passage in self.passages
            if passage is not named
            and (place := self._locate(quoted.quote, passage, verbatim=True))
            and self._supports(place, passage, sentence)
            and (read := self._read_meaning(place, sentence))
        ]
        long = len(normalise(quoted.quote).text) >= _LONG_ENOUGH_TO_KNOW
        if len(elsewhere) == 1 or (elsewhere and long):
            return elsewhere[0], ""
        if named is not None and (place := self._find_unquoted(sentence, named)):
            return place, ""
        return None, f"a citation was dropped: {problem}"

    def place_joined(self, sentence: str, quotes: Sequence[Quote]) -> tuple[list[Place], str]:
        """Return the places of a sentence with several quotes, or why it has none.

        First those that support it alone, then each that adds words which the others lack: no
        single passage may say "A has more than B". All together must support it. If two numbers or
        dates are what is compared, that is computed.
        """
        places: list[Place] = []
        sources: list[str] = []
        others: list[Place] = []
        problem = ""
        for quoted in quotes:
            place, why = self.place(sentence, quoted)
            problem = problem or why
            if place in places:  # quoted twice
                continue
            if place is not None:
                places.append(place)
                sources.append(self._source(place))
            elif (
                len(quotes) > 1
                and (found := self._locate_anywhere(quoted))
                and (read := self._read_meaning(found, sentence))
            ):
                others.append(read)
        located = list(dict.fromkeys([*places, *others]))
        compares = self._compare(sentence, located)
        if compares is not None:
            source = " ".join(map(self._source, located))
            stated = support(remove_computed(sentence, []), source, self.question)
            if compares and stated.enough(QUOTED):
                return [Place(place.span, COMPUTED) for place in located], problem
            return [], f"a citation was dropped: the quoted numbers do not give “{_cut(sentence)}”"
        for place in others:
            # Words of the question count here: they may join one place to another.
            missing = support(sentence, " ".join(sources)).missing
            more = " ".join([*sources, self._seen(place)])
            if len(support(sentence, more).missing) < len(missing):
                places.append(place)
                sources.append(self._source(place))
        if not support(sentence, " ".join(sources), self.question).enough(QUOTED):
            # Across languages only numbers were compared, for one source at a time.
            places = [place for place in places if place not in others]
        return places, problem

    def place_computed(self, sentence: str, quotes: Sequence[Statement | Quote]) -> list[Place]:
        """Return the places of all quotes if every number that none of them holds follows from
        theirs, and they support the rest of the sentence."""
        located = [self._locate_anywhere(quoted) for quoted in quotes]
        places = list(dict.fromkeys(place for place in located if place is not None))
        source = " ".join(map(self._source, places))
        missing = support(sentence, source, self.question).missing
        numbers = [word for word in missing if is_number(word)]
        computed = recompute(sentence, list(map(self._seen, places)), numbers) if numbers else []
        rest = remove_computed(sentence, computed)
        if not computed or not support(rest, source, self.question).enough(QUOTED):
            return []
        if self._compare(sentence, places) is False:
            return []
        if any(self._read_meaning(place, sentence) is None for place in places):
            return []
        return [Place(place.span, COMPUTED) for place in places]

    def _compare(self, sentence: str, places: Sequence[Place]) -> bool | None:
        """Return whether two places compare as a sentence says; None if it compares nothing."""
        if len(places) != 2:
            return None
        first, second = ((self._seen(place), self._source(place)) for place in places)
        return check_comparison(sentence, first, second)

    def _named(self, quoted: Statement | Quote) -> Passage | None:
        exists = 0 < quoted.passage <= len(self.passages)
        return self.passages[quoted.passage - 1] if exists else None

    def _locate(self, quote: str, passage: Passage, *, verbatim: bool = False) -> Place | None:
        """Return the sentences around a quote in a passage."""
        document = self.documents[passage.document_id]
        location = locate_quote(quote, document, passage, longest=LONGEST_QUOTE, verbatim=verbatim)
        if location is None:
            return None
        span = widen_to_sentences(document, location.span, passage.span)
        if has_commands_around(document, span):
            return None
        return Place(span if len(span) <= LONGEST_QUOTE else location.span, location.how.value)

    def _locate_anywhere(self, quoted: Statement | Quote) -> Place | None:
        """Return the same in the passage that the quote names, or in the first that has it."""
        named = self._named(quoted)
        if named is not None and (place := self._locate(quoted.quote, named)):
            return place
        others = (each for each in self.passages if each is not named)
        found = (self._locate(quoted.quote, each, verbatim=True) for each in others)
        return next((place for place in found if place is not None), None)

    def _supports(self, place: Place, passage: Passage, sentence: str) -> bool:
        """Return whether the sentences around a quote support a sentence of the answer."""
        document = self.documents[passage.document_id]
        seen = visible_text(place.span, document, passage)
        source = _in_context(passage, seen)
        if _other_language(f"{self.question} {sentence}", document):
            return has_all_numbers(sentence, source, self.question)
        # A year of the question is not missing in any source, so another one there is looked for.
        enough = support(sentence, source, self.question).enough(QUOTED)
        return enough and not changes_year(sentence, seen)

    def _find_unquoted(self, sentence: str, passage: Passage) -> Place | None:
        """Return sentences of a passage that support a sentence without being quoted."""
        document = self.documents[passage.document_id]
        for span in find_supporting_sentences(sentence, document, passage.span):
            seen = visible_text(span, document, passage)
            near = support(sentence, _in_context(passage, seen), self.question).enough(NEAR)
            near = near and not changes_year(sentence, seen)
            if near and len(span) <= LONGEST_QUOTE and not has_commands_around(document, span):
                found = Place(span, "supporting sentences")
                if read := self._read_meaning(found, sentence):
                    return read
        return None

    def _read_meaning(self, place: Place, sentence: str) -> Place | None:
        """Return a place with what it does with a sentence, or None if it says the opposite.

        Of a long place the two sentences are read that share most words with the sentence.
        """
        document = self.documents[place.span.document_id]
        if document.language != "en" or _other_language(f"{self.question} {sentence}", document):
            return place
        *_, span = place.span, *find_supporting_sentences(sentence, document, place.span)
        seen = visible_text(span, document, self._passage_of(span))
        pair = (sentence, document.title, seen)
        if pair not in self._meanings:
            self._meanings[pair] = check_meaning(*pair, self.verifier)
        meaning = self._meanings[pair]
        return None if meaning is Meaning.CONTRADICTS else replace(place, meaning=meaning)

    def read_short(self, place: Place, short: str) -> Place | None:
        """Return a place that has the words of a short answer, or None if it says the opposite."""
        document = self.documents[place.span.document_id]
        if document.language != "en" or _other_language(f"{self.question} {short}", document):
            return place
        source = self._seen(place)
        meaning = check_short_answer(short, self.question, source, self.verifier, document.title)
        return None if meaning is Meaning.CONTRADICTS else replace(place, meaning=meaning)

    def rate_sentences(
        self, question: str, short: str, passage: Passage, *, titled: bool = False
    ) -> Iterator[tuple[Span, Support]]:
        """Yield the sentences that hold the content words of a short answer in a row, and how far
        each supports question and answer; if it is a title, those that support the question."""
        document = self.documents[passage.document_id]
        wanted = split_content_words(short)
        for span in sentence_spans(document, passage.span) if wanted else ():
            seen = visible_text(span, document, passage)
            words = split_content_words(seen)
            held = support(question, seen).enough(NEAR) if titled else _holds(words, wanted)
            if held and len(span) <= LONGEST_QUOTE and not has_commands_around(document, span):
                yield span, support(f"{question} {short}", _in_context(passage, seen))

    def is_of_another_row(self, span: Span, passage: Passage) -> bool:
        """Return whether a row of a table lacks a name of the question that other rows have.

        Rows below it with a label alone are a part of it.
        """
        document = self.documents[passage.document_id]
        table = document.tree.node_at(span.start)
        if table.kind is not Kind.TABLE:
            return False
        end = min(table.span.end, passage.span.end)
        below = document.text[span.end : end].lstrip("\n").splitlines()
        own = takewhile(lambda line: not any(_split_cells(line)[1:]), below)
        row = " ".join([document.slice(span), *own])
        rows = document.text[max(table.span.start, passage.span.start) : end]
        named = find_capitalised(self.question).intersection(split_content_words(rows))
        return not named <= set(split_content_words(_in_context(passage, row)))

    def _source(self, place: Place) -> str:
        """Return what the reader saw of a place, after its title and headings."""
        passage = self.documents[place.span.document_id].passage(place.span)
        return _in_context(passage, self._seen(place))

    def _seen(self, place: Place) -> str:
        """Return what the reader saw of a place, in the first passage that has it."""
        document = self.documents[place.span.document_id]
        return visible_text(place.span, document, self._passage_of(place.span))

    def _passage_of(self, span: Span) -> Passage:
        return next(each for each in self.passages if each.span.contains(span))


def _is_title(short: str, passage: Passage) -> bool:
    """Return whether a short answer is the title of a passage, or a part of it."""
    return _holds(split_content_words(passage.title), split_content_words(short))


def _holds(words: Sequence[str], wanted: Sequence[str]) -> bool:
    """Return whether words hold others in a row."""
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))


_ENUMERATED = re.compile(r"\s*(?:\d+(?:\.\d+)+\.?|\d+[.)])(?:\s+|\Z)")


def _in_context(passage: Passage, text: str) -> str:
    """Return a text after its title and headings, which the reader sees too.

    The numbers of headings are removed: section 3 does not support "three years".
    """
    headings = (_ENUMERATED.sub("", heading, count=1) for heading in passage.section)
    return " ".join([passage.title, *headings, text])


def _other_language(claim: str, document: Document) -> bool:
    """Return whether a claim is certainly in another language than the document."""
    languages = detect_language(claim), document.language
    return "und" not in languages and languages[0] != languages[1]


def write_answer(
    stated: Sequence[Stated],
    documents: Mapping[str, Document],
    dropped: tuple[str, ...],
    *,
    short: str = "",
    question: str = "",
    verifier: Verifier | None = None,
) -> Cited:
    """Join the statements, number their marks, and record the place of each in the answer.

    Rows of tables are written in words, with the unit of their figures. The short answer must have
    support as a statement must; a "yes" beside words that deny it becomes "No".
    """
    text = ""
    stretches: dict[Place, list[tuple[int, int]]] = {}
    meanings: dict[Place, set[Meaning | None]] = {}
    for each in stated:
        text += " " if text else ""
        sentence = _say_rows(each, documents)
        stretch = len(text), len(text) + len(sentence)
        for place in each.places:
            stretches.setdefault(place, []).append(stretch)
            meanings.setdefault(place, set()).add(place.meaning)
        marks = [f"[{list(stretches).index(place) + 1}]" for place in each.places]
        text += f"{sentence} {''.join(marks) or UNCITED}"
    citations = []
    sources = [each.sentence for each in stated if each.places]
    for place, answer_spans in stretches.items():
        document = documents[place.span.document_id]
        passage = document.passage(place.span)
        sources.append(_in_context(passage, passage.text))
        meaning = place.meaning if len(meanings[place]) == 1 else Meaning.UNCLEAR
        citations.append(make_citation(document, place.span, answer_spans, place.how, meaning))
    short = remove_model_marks(short)
    foreign = any(
        _other_language(f"{question} {short}", documents[place.span.document_id])
        for place in stretches
    )
    source = " ".join(sources)
    read = short and not foreign
    verdicts = _read_short(short, question, stated, documents, verifier) if read else ()
    opposite = Meaning.CONTRADICTS in verdicts and Meaning.SUPPORTS not in verdicts
    if opposite and citations and YES.match(short):
        why = f"the cited words {OPPOSITE} it"
        dropped = (*dropped, f"the short answer “{_cut(short)}” is replaced by “No”: {why}")
        short, opposite = "No", False
    holds = not opposite and (
        has_all_numbers(short, source, question)
        if foreign
        else support(short, source, question).enough(QUOTED)
    )
    if short and not (citations and holds):
        why = f"the cited words {OPPOSITE} it" if opposite else "nothing cited says it"
        dropped = (*dropped, f"the short answer “{_cut(short)}” is left out: {why}")
        short = ""
    return Cited(text, tuple(citations), dropped, short)


def _read_short(
    short: str,
    question: str,
    stated: Sequence[Stated],
    documents: Mapping[str, Document],
    verifier: Verifier | None,
) -> set[Meaning]:
    """Return what statements and their places in English do with a short answer."""
    sentences, sources = [], {}
    for each in stated:
        for place in each.places:
            document = documents[place.span.document_id]
            if document.language == "en":
                *_, span = place.span, *find_supporting_sentences(short, document, place.span)
                sentences.append(each.sentence)
                sources[document.slice(span)] = document.title
    verdicts = {check_short_answer(short, question, each) for each in (*sentences, *sources)}
    if verifier is None or verdicts != {Meaning.UNCLEAR}:  # a verifier does not overrule the rules
        return verdicts
    return {
        check_short_answer(short, question, source, verifier, title)
        for source, title in sources.items()
    }


def _say_rows(stated: Stated, documents: Mapping[str, Document]) -> str:
    """Return the sentence of a statement, with rows of Markdown tables in words."""
    if "|" not in stated.sentence:
        return stated.sentence
    said = _frame(stated.sentence)
    is_row = stated.sentence[0] == stated.sentence[-1] == "|"
    for place in stated.places:
        document, span = documents[place.span.document_id], place.span
        table = document.tree.node_at(span.start)
        if table.kind is not Kind.TABLE:
            continue
        certain = document.media_type == "text/markdown" or document.row_of(span) is not None
        unit = document.table_unit(span)
        above = document.text[table.span.start : span.start].splitlines()
        for line in document.slice(span).splitlines():
            row = _frame(line)
            is_row = is_row or row in said or said.strip("|… ") in row
            in_words = _say_row(line, above, certain)
            if unit and any(map(_AMOUNT.search, _split_cells(line)[1:])):
                in_words += f" ({unit})"
            said = said.replace(row, f"{in_words.removesuffix('.')}. ")
            above.append(line)
    if not is_row:
        return stated.sentence
    # What is left are rules, parts of rows, and rows that no place has.
    cells = [cell for cell in _split_cells(said) if not _RULE.fullmatch(cell)]
    return ", ".join(cells).removesuffix(".").replace(". ”", "”").replace("\\|", "|")


def _say_row(row: str, above: Sequence[str] = (), certain: bool = False) -> str:
    """Return a row of a table in words, with the heads of its columns where they are known.

    That the first row is the head is `certain` in sheets and in Markdown. In other tables, often
    cut in pieces or without a head, only years are: in the first row or in one without a label,
    over each of several figures, all different.

    >>> _say_row("| Revenues | $ 5 | $ 6 |", ["| | 2014 | 2015 |", "|---|---|---|"])
    'Revenues, 2014: $ 5; 2015: $ 6'
    >>> _say_row("| Revenues | $ | 5 | $ 6 |", ["| Costs | | 2 | $ 3 |"])
    'Revenues: $ 5, $ 6'
    """
    label, *cells = _split_cells(row)
    values = list(filter(None, cells))
    figures = len(values) > 1 and all(map(_FIGURE.search, values))
    for line in reversed(above if certain or figures else ()):
        first, *heads = _split_cells(line)
        named = [(head, cell) for head, cell in zip(heads, cells, strict=False) if cell]
        is_head = _LETTER_OR_YEAR if certain and line == above[0] else _YEAR
        names = {head for head, _ in named if is_head.search(head)}
        if len(names) == len(values) > 0 and (not first or line == above[0]):
            said = "; ".join(f"{head}: {cell}" for head, cell in named)
            return f"{label}, {said}" if label else said
    said = _SIGN_ALONE.sub(r"\1", ", ".join(values))
    return ": ".join(filter(None, (label, said)))


def _frame(row: str) -> str:
    """Return a row, or several, as a statement has them, between bars."""
    return f"| {' '.join(row.split()).strip('|> ')} |"


def _split_cells(row: str) -> list[str]:
    """Return the cells of a row; a bar after a backslash is a part of one."""
    row = row.strip().lstrip("> ").removeprefix("|").removesuffix("|")
    return [" ".join(cell.split()) for cell in _BAR.split(row)]


_BAR = re.compile(r"(?<!\\)\|")
_RULE = re.compile(r"|:?-{3,}:?")
_FIGURE = re.compile(r"\d|^[-–—]$")
_AMOUNT = re.compile(r"^(?!(?:19|20)\d\d$|.*%).*\d")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b(?!,)")
_LETTER_OR_YEAR = re.compile(rf"[^\W\d_]|{_YEAR.pattern}")
_SIGN_ALONE = re.compile(r"(?<!\S)([$€£¥]),(?= )|,(?= [%)](?:,|\Z))")

# Of up to three digits: "[2019] UKSC 5" is the name of a judgement.
_MARK = re.compile(r"\s*\[(?:\d{1,3}(?:\s*,\s*\d{1,3})*|uncited)\]")


def remove_model_marks(sentence: str) -> str:
    """Remove the model's own citation marks: only ours are checked."""
    return " ".join(_MARK.sub("", sentence).split())


def _cut(text: str, length: int = 80) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"
