"""Whether a library is whole: the catalogue against itself and against the passage index."""

from __future__ import annotations

from dataclasses import dataclass, field

from colligate.documents.document import digest
from colligate.errors import SpanError
from colligate.library.catalogue import Catalogue
from colligate.library.passage_index import PassageIndex
from colligate.library.schema import State


@dataclass
class Findings:
    """What is wrong, in lines for a person and in numbers for the repair.

    `unindexed` are documents with passages missing from the index, `orphans` passages of the
    index without a document, `damaged` documents whose stored text is not what was stored.
    """

    problems: list[str] = field(default_factory=list)
    unindexed: list[int] = field(default_factory=list)
    orphans: list[int] = field(default_factory=list)
    damaged: list[int] = field(default_factory=list)


def verify(catalogue: Catalogue, index: PassageIndex | None) -> Findings:
    """Check everything; `index` is None for a library that never indexed anything."""
    findings = Findings(problems=catalogue.problems())
    for document_id, number in catalogue.numbers().items():
        why = _damage(catalogue, number)
        if why:
            findings.problems.append(f"document {document_id}: {why}")
            findings.damaged.append(number)
    if index is not None:
        _compare(catalogue, index, findings)
    return findings


def _damage(catalogue: Catalogue, number: int) -> str:
    try:
        document = catalogue.document(number)
    except (SpanError, ValueError, TypeError) as error:
        return f"its tree cannot be read ({error})"
    if document is None:
        return ""  # removed a moment ago
    info = document.tree.root.span
    if digest(document.text) != catalogue.digest(number):
        return "its text is not the text that was stored"
    if (info.start, info.end) != (0, len(document.text)):
        return "its tree does not cover its text"
    for placed in catalogue.passages_of(number):
        if not 0 <= placed.start <= placed.end <= len(document.text):
            return f"passage {placed.start}-{placed.end} reaches beyond its text"
    return ""


def _compare(catalogue: Catalogue, index: PassageIndex, findings: Findings) -> None:
    expected = catalogue.passage_numbers(State.INDEXED)
    present = index.passages()
    ids = {number: document_id for document_id, number in catalogue.numbers().items()}
    missing: dict[int, int] = {}
    for passage, document in expected.items():
        if present.get(passage) != document:
            missing[document] = missing.get(document, 0) + 1
    for document, count in sorted(missing.items()):
        line = f"document {ids.get(document, document)}: {count} passages are not in the index"
        findings.problems.append(line)
        findings.unindexed.append(document)
    findings.orphans = sorted(present.keys() - expected.keys())
    if findings.orphans:
        line = f"the index holds {len(findings.orphans)} passages that belong to no document"
        findings.problems.append(line)
