"""Citations: of the right documents, of every sentence, and whether they say what is said."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from colligate.bench.metrics.backends import Entails
from colligate.bench.metrics.evidence import documents_of
from colligate.bench.metrics.short_answers import unmarked
from colligate.bench.outcome import Outcome, Piece
from colligate.bench.question import Question
from colligate.documents.sentences import split_sentences

AT_MOST = 3  # citations of a sentence that ALCE looks at

_MARKS = re.compile(r"((?:\s*\[(?:\d+(?:\s*,\s*\d+)*|uncited)\])+[.!?]?)")


@dataclass(frozen=True)
class Cited:
    """A statement of an answer, and the numbers of its marks."""

    text: str
    marks: tuple[int, ...]


def cited_statements(text: str) -> list[Cited]:
    """The statements of an answer, each up to its marks; what no mark follows, by sentences."""
    parts = _MARKS.split(text)
    found = [
        Cited(said.strip(), tuple(dict.fromkeys(map(int, re.findall(r"\d+", marks)))))
        for said, marks in zip(parts[::2], parts[1::2], strict=False)
    ]
    rest = parts[-1]
    found += [Cited(rest[start:end], ()) for start, end in split_sentences(rest)]
    return [each for each in found if re.search(r"\w", each.text)]


def citation_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """Precision and recall of cited documents against the gold, and the share of cited statements.

    `citation_precision` is the share of cited documents that are gold, `citation_recall` the
    share of gold documents that are cited; both only where the gold is known.
    """
    answered = outcome.found and not outcome.error
    said = cited_statements(outcome.text) if answered else []
    marked = sum(bool(each.marks) for each in said)
    measures = {"cited_statements": marked / len(said) if said else 0.0}
    if question.gold:
        cited = set(documents_of(outcome.citations)) if answered else set()
        gold = set(question.gold)
        measures["citation_precision"] = len(cited & gold) / len(cited) if cited else 0.0
        measures["citation_recall"] = len(cited & gold) / len(gold)
    return measures


async def nli_citation_measures(outcome: Outcome, nli: Entails) -> dict[str, float]:
    """ALCE's citation recall and precision, over statements and the passages they cite.

    A statement is supported if its passages together entail it. A citation is precise if its
    statement is supported and it alone entails it, or the others without it do not.
    """
    answered = outcome.found and not outcome.error
    said = cited_statements(outcome.text) if answered else []
    supported = precise = given = 0
    for each in said:
        if not each.marks or max(each.marks) > len(outcome.citations) or min(each.marks) < 1:
            continue
        pieces = [outcome.citations[mark - 1] for mark in each.marks[:AT_MOST]]
        given += len(pieces)
        claim = unmarked(each.text)
        if await nli.entails(_passages(pieces), claim):
            supported += 1
            precise += await _precise(pieces, claim, nli)
    return {
        "citation_recall_nli": supported / len(said) if said else 0.0,
        "citation_precision_nli": precise / given if given else 0.0,
    }


async def _precise(pieces: Sequence[Piece], claim: str, nli: Entails) -> int:
    """How many passages of a supported claim are needed for it."""
    if len(pieces) == 1:
        return 1
    needed = 0
    for place, piece in enumerate(pieces):
        others = [*pieces[:place], *pieces[place + 1 :]]
        alone = await nli.entails(_passages([piece]), claim)
        needed += alone or not await nli.entails(_passages(others), claim)
    return needed


def _passages(pieces: Sequence[Piece]) -> str:
    return "\n".join(f"Title: {piece.title}\n{piece.text}" for piece in pieces)
