"""What is wrong in a library: the catalogue checked against itself and the index."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from colligate.errors import SpanError
from colligate.library.catalogue import Catalogue
from colligate.library.protocols import PassageStore
from colligate.library.schema import DocumentState


@dataclass
class Damage:
    """Problems in lines for a person, and in numbers for the repair."""

    problems: list[str]
    unindexed: list[int] = field(default_factory=list)  # documents
    orphans: list[int] = field(default_factory=list)  # passages of the index without a document
    damaged: list[int] = field(default_factory=list)  # documents whose stored text has changed


def find_damage(catalogue: Catalogue, index: PassageStore | None) -> Damage:
    """Check the catalogue against itself and the index, which is None if nothing was indexed."""
    damage = Damage(catalogue.check())
    for document_id, number in catalogue.numbers().items():
        if why := _check_document(catalogue, number):
            damage.problems.append(f"document {document_id}: {why}")
            damage.damaged.append(number)
    if index is None:
        return damage
    present = index.passages()  # read first: another process may write meanwhile
    expected = catalogue.passage_numbers(DocumentState.INDEXED)
    pending = catalogue.passage_numbers(DocumentState.PENDING)
    ids = {number: document_id for document_id, number in catalogue.numbers().items()}
    missing = Counter(
        document for passage, document in expected.items() if present.get(passage) != document
    )
    for document, count in sorted(missing.items()):
        line = f"document {ids.get(document, document)}: {count} passages are not in the index"
        damage.problems.append(line)
    damage.unindexed = sorted(missing)
    damage.orphans = sorted(present.keys() - expected.keys() - pending.keys())
    if damage.orphans:
        line = f"the index has {len(damage.orphans)} passages that belong to no document"
        damage.problems.append(line)
    return damage


def _check_document(catalogue: Catalogue, number: int) -> str:
    try:
        document = catalogue.document(number)
    except (SpanError, ValueError, TypeError) as error:
        return f"its tree cannot be read ({error})"
    if document is None:
        return ""  # removed a moment ago
    root = document.tree.root.span
    if document.digest != catalogue.digest(number):
        return "its text is not the text that was stored"
    if (root.start, root.end) != (0, len(document.text)):
        return "its tree does not cover its text"
    for passage in catalogue.passages_of(number):
        if not 0 <= passage.start <= passage.end <= len(document.text):
            return f"passage {passage.start}-{passage.end} reaches beyond its text"
    return ""
