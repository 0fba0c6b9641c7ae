"""Other places that say the same with another figure or date: "180 days" in one, "270" in the next.

An answer is read from the passages that a search found best. Where a library holds several versions
of a text, or a document amends itself, another place may give another figure. Neither is preferred
silently: the other sentence is found by its words, without a model, and shown beside the answer
with its date.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from colligate.core.answer import Answer
from colligate.core.citing import Citation, make_citation, remove_model_marks
from colligate.core.computing import DATE, NAMED_MONTH, find_larger
from colligate.core.orders import has_commands_around
from colligate.core.run import Run
from colligate.core.support import is_number, split_content_words
from colligate.documents import Document, Span
from colligate.documents.sentences import sentence_spans
from colligate.errors import LibraryError
from colligate.library.sources import SearchMode

VERSION = "another version"
"""How a place was found that gives another figure than the answer."""

_ALIKE = 0.75  # of the words of both sentences that are in both, without numbers
_FEWEST = 5  # words in both: fewer are alike by chance
_SEARCHED = 8  # passages for each cited sentence
_SENTENCES = 20  # cited sentences whose other versions are looked for
_PATIENCE = 5.0  # seconds
_MOST = 3  # other versions that are shown
_Found = dict[str, tuple[Document, Span]]  # by the sentence: its newest copy
_NAME = re.compile(r"(?<=[\w,;] )[A-Z]\w+")
_DATE = re.compile(
    rf"{DATE.pattern}|(?:\b(?:{NAMED_MONTH})\s+)?(?<![\w.,])(?:19|20)\d\d(?![.,]?\d)", re.IGNORECASE
)


async def add_versions(answer: Answer, run: Run) -> Answer:
    """Return the answer with what other places say with other figures, cited and dated.

    English only in part: names are told by their capitals. Tables are left out, because all their
    rows are alike. Where the library fails or takes too long, a warning says so.
    """
    found: _Found = {}
    cited = [
        (citation, sentence)
        for citation in answer.citations
        for sentence in _list_figures(citation, answer)
    ]
    try:
        async with asyncio.timeout(_PATIENCE):
            for citation, sentence in cited[:_SENTENCES]:
                await _find_others(sentence, citation, answer, run, found)
    except (LibraryError, TimeoutError) as error:
        why = f": {error}" if str(error) else f" within {_PATIENCE:g} seconds"
        run.warn(f"the search for other versions of what is cited did not finish{why}")
    for sentence, (document, span) in list(found.items())[:_MOST]:
        answer = show_other(answer, sentence, document, span)
    if found:
        run.warn("other places give other figures: they are shown beside the answer")
    return answer


async def _find_others(
    sentence: str, citation: Citation, answer: Answer, run: Run, found: _Found
) -> None:
    """Add the sentences of other documents and sections that differ from a cited one in figures."""
    for hit in await run.sources.search(sentence, k=_SEARCHED, mode=SearchMode.SPARSE):
        passage = hit.passage
        if _names_one(answer.question, citation.title, passage.title):
            continue
        document = await run.document(passage.document_id)
        same = document.id == citation.span.document_id
        for span in sentence_spans(document, passage.span):
            other = " ".join(document.slice(span).split())
            shown = any(each.span.overlaps(span) for each in answer.citations)
            if shown or (same and not _amends(document.section_of(span), other, citation)):
                continue
            if differ_in_figures(sentence, other):
                differ = not same or _keeps_the_rest(sentence, other, answer.short or "")
            else:
                # "The film was released in 1936" is about its own document.
                titles = (
                    set(split_content_words(each)) for each in (citation.title, passage.title)
                )
                differ = _include(*titles) and differ_in_date(sentence, other, answer.short or "")
            if not differ:
                continue
            if has_commands_around(document, span):
                continue
            if other not in found or document.date > found[other][0].date:
                found[other] = document, span


_AMENDS = re.compile(
    r"\b(?:amend|revis|supersed|replac|correct|errat|updat|chang|modif|addend|supplement)", re.I
)


def _amends(section: Sequence[str], sentence: str, citation: Citation) -> bool:
    """Return whether a place in the document cited says that it amends.

    Elsewhere what is said of model X in one section is said of model Y in the next.
    """
    other = tuple(section) != tuple(citation.section)
    return other and bool(_AMENDS.search(" ".join((*section, sentence))))


def differ_in_figures(one: str, other: str) -> bool:
    """Return whether two sentences say the same of the same things but for their figures.

    Sentences about different dates are about different things.

    >>> differ_in_figures(
    ...     "The tenant may appeal against a notice within 180 days of its receipt.",
    ...     "The tenant may appeal against a notice within 270 days of its receipt.",
    ... )
    True
    """
    mine, its = _split(one)[1], _split(other)[1]
    dates = _find_dates(one).keys(), _find_dates(other).keys()
    return dates[0] == dates[1] and bool(mine - its and its - mine) and _are_alike(one, other)


def _keeps_the_rest(one: str, other: str, short: str) -> bool:
    """Return whether nothing but the short answer is changed, as where a document amends itself.

    Elsewhere in one document, what is said of tenants is said of landlords.
    """
    (words, mine), (others, its) = _split(one), _split(other)
    return mine - its <= _split(short)[1] and _include(words, others)


def differ_in_date(one: str, other: str, short: str) -> bool:
    """Return whether two sentences differ only in the date that is the short answer of the first.

    A date that begins a sentence is one of a series: "In 2019 ...", "In 2020 ...".

    >>> differ_in_date(
    ...     "The harbour bridge of Elmstead opened to traffic in 1921.",
    ...     "The harbour bridge of Elmstead opened to traffic on 3 May 1931.",
    ...     "in 1921",
    ... )
    True
    """
    dates = _find_dates(one), _find_dates(other)
    mine, its = ([dates[i][key] for key in dates[i].keys() - dates[1 - i].keys()] for i in (0, 1))
    if len(mine) != 1 or len(its) != 1 or find_larger(short, mine[0]) is not None:
        return False
    if any(
        len(text.partition(date)[0].split()) < 2 for text, [date] in ((one, mine), (other, its))
    ):
        return False
    rest = one.replace(mine[0], " "), other.replace(its[0], " ")
    words, figures = zip(*map(_split, rest), strict=True)
    differs = find_larger(short, its[0])  # None if one is a part of the other
    return (
        differs is not None
        and differs[0] == "date"
        and figures[0] == figures[1]
        and _include(*words)
        and _are_alike(*rest)
    )


def _find_dates(text: str) -> dict[frozenset[str], str]:
    """Return the dates and years of a sentence as they stand, by their words."""
    found = (match[0] for match in _DATE.finditer(text))
    return {frozenset(split_content_words(each)): each for each in found}


def _are_alike(one: str, other: str) -> bool:
    """Return whether two sentences have the same names and most of their words in common."""
    words = [_split(each)[0] for each in (one, other)]
    names = [set(_NAME.findall(each)) for each in (one, other)]
    both, either = words[0] & words[1], words[0] | words[1]
    return len(both) >= max(_FEWEST, _ALIKE * len(either)) and names[0] == names[1]


def _include(one: set[str], other: set[str]) -> bool:
    """Return whether one of two texts has all words of the other: "Rules", "Amended rules"."""
    return bool(one and other) and one & other in (one, other)


def _split(text: str) -> tuple[set[str], set[str]]:
    """Return the words of a sentence and its figures."""
    found = set(split_content_words(text))
    figures = set(filter(is_number, found))
    return found - figures, figures


def _list_figures(citation: Citation, answer: Answer) -> Iterator[str]:
    """Yield the sentences of a citation with a figure that the answer states."""
    stated = " ".join(answer.text[a:b] for a, b in citation.answer_spans)
    figures = _split(f"{stated} {answer.short or ''}")[1]
    for sentence in re.split(r"(?<=[.!?])\s+", citation.quote):
        if "|" not in sentence and figures & _split(sentence)[1]:
            yield sentence


def _names_one(question: str, title: str, other: str) -> bool:
    """Return whether the question names the document of this title and not the other."""
    asked, mine, its = (set(split_content_words(text)) for text in (question, title, other))
    return len(asked & mine) > len(asked & its)


def show_other(answer: Answer, sentence: str, document: Document, span: Span) -> Answer:
    """Return the answer with a sentence of another place beside it, cited and dated."""
    start = len(answer.text) + 1
    what, title = "document", document.title
    if any(each.span.document_id == document.id for each in answer.citations):
        what, title = "place", (document.section_of(span) or (title,))[-1]
    place = f"{title} ({date})" if (date := document.date) else title
    said = f"Another {what} says otherwise, {place}: “{remove_model_marks(sentence)}”"
    citation = make_citation(document, span, [(start, start + len(said))], VERSION)
    return replace(
        answer,
        text=f"{answer.text} {said} [{len(answer.citations) + 1}]",
        citations=(*answer.citations, citation),
    )
