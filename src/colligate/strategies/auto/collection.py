"""The documents themselves: how many there are, which, and how each begins; no model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from colligate.core.answer import NOT_FOUND, Answer, Place, Stated, Verdict
from colligate.core.events import pluralize
from colligate.core.run import Run, Shown
from colligate.documents import Document, Kind, Passage, Span
from colligate.documents.sentences import sentence_spans
from colligate.library.sources import DocumentInfo
from colligate.readers.citing import documents_of, finish, write_answer

_MOST_LISTED = 50
_LEAST_WORDS = 4  # of a sentence that says something
_LONGEST = 300  # characters of the words that are shown of a document


async def describe_collection(question: str, infos: Sequence[DocumentInfo], run: Run) -> Answer:
    """Return the number of documents and, of the first fifty, the title, the file, the date, and
    the first sentence, which is cited."""
    stated, evidence = [], []
    for info in infos[:_MOST_LISTED]:
        document = await run.document(info.id)
        lead = _find_lead(document)
        facts = [PurePath(info.source).name, info.date]
        facts += [pluralize(info.pages, "page")] if info.pages else []
        said = " ".join(document.slice(lead).split())
        line = f"{info.title} ({', '.join(filter(None, facts))}): “{said}”"
        stated.append(Stated(line, (Place(lead, "the beginning", Verdict.SUPPORTED),)))
        evidence.append(Shown(document.passage(lead), reason="the beginning").evidence)
    places = tuple(place for each in stated for place in each.places)
    rest = len(infos) - len(stated)
    more = f"; {rest:,} more are shown by `colligate library list`" if rest else ""
    count = pluralize(len(infos), "document")
    stated.insert(0, Stated(f"{count}{more}:", places))
    cited = write_answer(stated, await documents_of(stated, run), "\n- ")
    refused = Answer(question, "", NOT_FOUND, False, evidence=tuple(evidence))
    return finish(refused, replace(cited, short=count), run)


def _find_lead(document: Document) -> Span:
    """Return the first sentence of a paragraph or list, else the beginning of the text."""
    for node in document.tree:
        if node.kind in (Kind.PARAGRAPH, Kind.LIST_ITEM):
            for span in sentence_spans(document, node.span):
                if len(document.slice(span).split()) >= _LEAST_WORDS:
                    return _cut(document, span)
    return _cut(document, document.trim(0, len(document)) or document.span(0, len(document)))


def _cut(document: Document, span: Span) -> Span:
    return document.trim(span.start, min(span.end, span.start + _LONGEST)) or span


def cover(passages: Sequence[Passage], k: int) -> list[Passage]:
    """Return `k` passages of a document that stand for all of it, in their order: the beginnings of
    its sections, the higher ones before those inside them, then others at equal distances."""
    firsts: dict[tuple[str, ...], Passage] = {}
    for each in passages:
        firsts.setdefault(each.section, each)
    chosen = sorted(firsts.values(), key=lambda each: len(each.section))[:k]
    rest = [each for each in passages if each not in chosen]
    wanted = min(k - len(chosen), len(rest))
    chosen += [rest[at * len(rest) // wanted] for at in range(wanted)]
    return sorted(chosen, key=lambda each: each.span.start)
