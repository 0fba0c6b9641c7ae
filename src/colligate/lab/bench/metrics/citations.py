"""Citations: of the right documents, in every statement, and whether they support it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from colligate.documents.sentences import split_sentences
from colligate.lab.bench.metrics.answers import MARK, remove_citation_marks
from colligate.lab.bench.metrics.evidence import collect_documents
from colligate.lab.bench.metrics.groups import Entails, MetricGroup
from colligate.lab.bench.outcome import Outcome, Piece
from colligate.lab.bench.question import Question

AT_MOST = 3  # citations of a sentence that ALCE looks at


def citation_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """Return precision and recall of cited documents, and the share of cited statements.

    `citation_precision` is the share of cited documents that are gold, `citation_recall` the
    share of gold documents that are cited; both only where the gold is known.
    """
    said = split_statements(outcome.text) if outcome.answered else []
    marked = sum(bool(each.marks) for each in said)
    measures = {"cited_statements": marked / len(said) if said else 0.0}
    if question.gold:
        cited = set(collect_documents(outcome.citations)) if outcome.answered else set()
        gold = set(question.gold)
        measures["citation_precision"] = len(cited & gold) / len(cited) if cited else 0.0
        measures["citation_recall"] = len(cited & gold) / len(gold)
    return measures


async def nli_citation_measures(_: Question, outcome: Outcome, nli: Entails) -> dict[str, float]:
    """Return ALCE's citation recall and precision, over statements and the passages they cite.

    A statement is supported if its passages together entail it. A citation is precise if its
    statement is supported and it alone entails it, or the others without it do not.
    """
    said = split_statements(outcome.text) if outcome.answered else []
    supported = precise = given = 0
    for each in said:
        if not each.marks or max(each.marks) > len(outcome.citations) or min(each.marks) < 1:
            continue
        pieces = [outcome.citations[mark - 1] for mark in each.marks[:AT_MOST]]
        given += len(pieces)
        claim = remove_citation_marks(each.text)
        if await nli.entails(_join(pieces), claim):
            supported += 1
            precise += await _count_needed(pieces, claim, nli)
    return {
        "citation_recall_nli": supported / len(said) if said else 0.0,
        "citation_precision_nli": precise / given if given else 0.0,
    }


async def _count_needed(pieces: Sequence[Piece], claim: str, nli: Entails) -> int:
    """Return how many passages of a supported claim are needed for it."""
    if len(pieces) == 1:
        return 1
    needed = 0
    for place, piece in enumerate(pieces):
        others = [*pieces[:place], *pieces[place + 1 :]]
        alone = await nli.entails(_join([piece]), claim)
        needed += alone or not await nli.entails(_join(others), claim)
    return needed


def _join(pieces: Sequence[Piece]) -> str:
    return "\n".join(f"Title: {piece.title}\n{piece.text}" for piece in pieces)


CITATIONS = MetricGroup("citations", citation_measures)
NLI_CITATIONS = MetricGroup("nli_citations", ask=nli_citation_measures, needs="nli")

_MARKS = re.compile(rf"((?:\s*{MARK})+[.!?]?)")


@dataclass(frozen=True)
class CitedStatement:
    """A statement of an answer, and the numbers of its marks."""

    text: str
    marks: tuple[int, ...]


def split_statements(text: str) -> list[CitedStatement]:
    """Return the statements of an answer: each up to its marks, the rest by sentences."""
    parts = _MARKS.split(text)
    found = [
        CitedStatement(said.strip(), tuple(dict.fromkeys(map(int, re.findall(r"\d+", marks)))))
        for said, marks in zip(parts[::2], parts[1::2], strict=False)
    ]
    rest = parts[-1]
    found += [CitedStatement(rest[start:end], ()) for start, end in split_sentences(rest)]
    return [each for each in found if re.search(r"\w", each.text)]
