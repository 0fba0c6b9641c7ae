"""Other documents that say the same with other figures: "180 days" in one, "270" in the next.

An answer is read from the passages that a search found best. Where a library holds several versions
of a text, another version may give another figure. Neither is preferred silently: the other
sentence is found by its words, without a model, and shown beside the answer with its date.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import replace

from colligate.core.answer import Answer
from colligate.core.citing import Citation, make_citation, remove_model_marks
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
_YEAR = re.compile(r"(?:19|20)\d\d")
_NAME = re.compile(r"(?<=[\w,;] )[A-Z]\w+")


async def add_versions(answer: Answer, run: Run) -> Answer:
    """Return the answer with what other documents say with other figures, cited and dated.

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
        run.warn(f"other versions of what is cited were not all looked for{why}")
    for sentence, (document, span) in list(found.items())[:_MOST]:
        answer = show_other(answer, sentence, document, span)
    if found:
        run.warn("other documents give other figures: they are shown beside the answer")
    return answer


async def _find_others(
    sentence: str, citation: Citation, answer: Answer, run: Run, found: _Found
) -> None:
    """Add the sentences of other documents that differ from a cited one in their figures."""
    for hit in await run.sources.search(sentence, k=_SEARCHED, mode=SearchMode.SPARSE):
        passage = hit.passage
        if passage.document_id == citation.span.document_id or _names_one(
            answer.question, citation.title, passage.title
        ):
            continue
        document = await run.document(passage.document_id)
        for span in sentence_spans(document, passage.span):
            other = " ".join(document.slice(span).split())
            shown = any(each.span.overlaps(span) for each in answer.citations)
            if shown or not differ_in_figures(sentence, other):
                continue
            if has_commands_around(document, span):
                continue
            if other not in found or document.date > found[other][0].date:
                found[other] = document, span


def differ_in_figures(one: str, other: str) -> bool:
    """Return whether two sentences say the same of the same things but for their figures.

    Sentences about different years are about different things.

    >>> differ_in_figures(
    ...     "The tenant may appeal against a notice within 180 days of its receipt.",
    ...     "The tenant may appeal against a notice within 270 days of its receipt.",
    ... )
    True
    """
    texts = (one, other)
    words, figures = zip(*map(_split, texts), strict=True)
    years = [set(filter(_YEAR.fullmatch, each)) for each in figures]
    names = [set(_NAME.findall(each)) for each in texts]
    both, either = words[0] & words[1], words[0] | words[1]
    return (
        len(both) >= _FEWEST
        and len(both) >= _ALIKE * len(either)
        and years[0] == years[1]
        and names[0] == names[1]
        and bool(figures[0] - figures[1])
        and bool(figures[1] - figures[0])
    )


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
    """Return the answer with a sentence of another document beside it, cited and dated."""
    start = len(answer.text) + 1
    place = f"{document.title} ({date})" if (date := document.date) else document.title
    said = f"Another document says otherwise, {place}: “{remove_model_marks(sentence)}”"
    citation = make_citation(document, span, [(start, start + len(said))], VERSION)
    return replace(
        answer,
        text=f"{answer.text} {said} [{len(answer.citations) + 1}]",
        citations=(*answer.citations, citation),
    )
