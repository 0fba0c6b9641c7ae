"""Ranking what a search found: what says nothing goes, lists of references come last, a reranker's
scores order the rest."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colligate.documents import Hit, Passage
from colligate.documents.locating import normalise
from colligate.library.bm25 import split_words
from colligate.library.sources import SearchMode, Sources

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

_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def put_references_last(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Return what a search found with the lists of references and links after everything else.

    Titles of works have the words of a question more often than they answer it, unless it asks for
    works or their authors. Scores are lowered to those above.
    """
    last = [hit for hit in hits if any(map(_REFERENCES.fullmatch, hit.passage.section))]
    if not last or len(last) == len(hits) or _ASKS_REFERENCES.search(question):
        return list(hits)
    first = [hit for hit in hits if hit not in last]
    least = min(hit.score for hit in first)
    return [*first, *(replace(hit, score=min(hit.score, least)) for hit in last)]


def drop_titles(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits that say more than their title, headings and page number, if there are any. A
    search for a name finds first the line that has nothing but this name."""

    def says_more(passage: Passage) -> bool:
        above = normalise(" ".join([passage.full_title, *passage.section])).text
        text = normalise(passage.text).text
        return text not in above and any(map(str.isalpha, text))

    return [hit for hit in hits if says_more(hit.passage)] or list(hits)


def drop_repeats(hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits without those whose full title and text an earlier one has, but for spaces.

    Copies of a document would take the places of other passages. Documents of one title that their
    folders tell apart are none: the same clause of two contracts is a fact about each.
    """
    kept: dict[tuple[str, str], Hit] = {}
    for hit in hits:
        passage = hit.passage
        kept.setdefault((passage.full_title, normalise(passage.text).text), hit)
    return list(kept.values())


def put_newest_first(question: str, hits: Sequence[Hit]) -> list[Hit]:
    """Return the hits; those of versions of one document in the order of their dates, newest first.

    Versions have one title, different dates, and passages under the same headings with the same
    words of the question. One that names a year may want an older one. Scores stay where they are.
    """
    if _YEAR.search(question):
        return list(hits)
    asked = set(map(str.casefold, split_words(question)))
    versions: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    dates: dict[str, set[str]] = defaultdict(set)
    for hit in hits:
        dates[hit.passage.title].add(hit.passage.date)
    for at, hit in enumerate(hits):
        passage = hit.passage
        if passage.date and len(dates[passage.title]) > 1:
            words = asked.intersection(map(str.casefold, split_words(passage.text)))
            versions[passage.title, passage.section, frozenset(words)].append(at)
    ordered = list(hits)
    for places in versions.values():
        newest = sorted(places, key=lambda at: hits[at].passage.date, reverse=True)
        for to, at in zip(places, newest, strict=True):
            ordered[to] = replace(hits[at], score=hits[to].score)
    return ordered


def put_first(passages: Sequence[Passage], hits: Sequence[Hit]) -> list[Hit]:
    """Return these passages with the best score, then the hits that do not overlap them."""
    score = hits[0].score if hits else 0.0
    rest = [hit for hit in hits if not any(hit.passage.span.overlaps(p.span) for p in passages)]
    return [*(Hit(passage, score) for passage in passages), *rest]


def order_by_scores(question: str, hits: Sequence[Hit], scores: Sequence[float]) -> list[Hit]:
    """Return hits with these scores, best first, newest versions first, references last."""
    scored = [replace(hit, score=score) for hit, score in zip(hits, scores, strict=True)]
    ranked = sorted(scored, key=lambda hit: -hit.score)
    return put_newest_first(question, put_references_last(question, ranked))


async def are_in_language(
    language: str | None, passages: Sequence[Passage], sources: Sources
) -> bool:
    """Return whether most documents of these passages are, or may be, in a language (None: any)."""
    if language is None:
        return True
    names = {passage.document_id for passage in passages}
    found = [info.language for info in await sources.documents() if info.id in names]
    return 2 * sum(each in (language, "und") for each in found) >= len(found)


async def score_by_mode(
    query: str,
    hits: Sequence[Hit],
    sources: Sources,
    mode: SearchMode,
    documents: Collection[str] | None,
) -> NDArray[np.float64]:
    """Return the mean z-score of hits in the searches that a mode joins, in their order."""
    joined = (SearchMode.DENSE, SearchMode.SPARSE) if mode == SearchMode.HYBRID else (mode,)
    total = np.zeros(len(hits))
    for each in joined:
        found = await sources.search(query, k=2 * len(hits), mode=each, documents=documents)
        scores = {hit.passage.id: hit.score for hit in found}
        least = min(scores.values(), default=0.0)  # of a hit that is not among the first
        total += standardise([scores.get(hit.passage.id, least) for hit in hits])
    return total / len(joined)


def standardise(values: Sequence[float]) -> NDArray[np.float64]:
    """Return z-scores with the population's standard deviation; zeros if all values are equal."""
    array = np.asarray(values, np.float64)
    deviation = array.std() if array.size else 0.0
    if deviation <= 1e-12 * max(1.0, float(np.abs(array).max(initial=0.0))):
        return np.zeros_like(array)
    standard: NDArray[np.float64] = (array - array.mean()) / deviation
    return standard


def titled_text(passage: Passage) -> str:
    """Return a passage under its title and heading path, as rerankers and embedders see it."""
    return "\n".join([" > ".join([passage.full_title, *passage.section]), passage.text])
