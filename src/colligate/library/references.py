"""Lists of references and links: a search puts them after everything else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from colligate.documents import Hit, Passage

_REFERENCES = re.compile(
    r"""\W*(?:[\dIVX]+\.?\s)?(?:
      (?:selected\s|notes\sand\s)?(?:references|bibliography)(?:\sand\s(?:notes|further\sreading))?
    | (?:works|literature)\scited | external\slinks | further\sreading | see\salso
    | einzelnachweise | literatur(?:verzeichnis)? | weblinks | r[ée]f[ée]rences | bibliographie
    | liens\sexternes | referencias | bibliograf[íi]a | enlaces\sexternos | 参考文献 | 外部链接
    )(?:\s[(\[]edit[)\]])?\W*""",
    re.IGNORECASE | re.VERBOSE,
)
# A list of references may be what is asked for, and it may alone say who wrote something.
_ASKS_REFERENCES = re.compile(
    r"\b(?:cit(?:es?|ed|ing|ations?)|references?|bibliograph\w+|literature|publications?|"
    r"wrote|written|authors?)\b",
    re.IGNORECASE,
)


def lists_references(question: str, passage: Passage) -> bool:
    """Return whether a passage is in a list of references or links, and the question asks neither
    for works nor for their authors."""
    listed = any(map(_REFERENCES.fullmatch, passage.section))
    return listed and not _ASKS_REFERENCES.search(question)


def put_references_last(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Return what a search found with the lists of references and links after everything else.

    Titles of works have the words of a question more often than they answer it. Scores are lowered
    to those above.
    """
    last = [hit for hit in hits if lists_references(question, hit.passage)]
    if not last or len(last) == len(hits):
        return list(hits)
    first = [hit for hit in hits if hit not in last]
    least = min(hit.score for hit in first)
    return [*first, *(replace(hit, score=min(hit.score, least)) for hit in last)]
