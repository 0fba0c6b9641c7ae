"""Finding: which of the passages answers, and where in it, by a small model that is carried.

The reader is not asked. The model is the reranker `minilm` (`models.pairs`), also if another one
ordered the passages; it knows English.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from colligate.core.answer import NOT_FOUND, Answer, Place, Stated, Verdict
from colligate.core.events import Event
from colligate.core.run import Run, Shown
from colligate.documents import Passage, Span
from colligate.documents.compress import CompressedPassage, visible_text
from colligate.documents.sentences import blank_notes, widen_to_sentences
from colligate.library.ranking import are_in_language, standardise, titled_text
from colligate.models import Role
from colligate.models.pairs import Found, MiniLMReranker
from colligate.readers.citing import LONGEST_QUOTE, finish, remove_model_marks, write_answer
from colligate.readers.promise import load_promise, logit

_SEARCH = 0.5  # weight of the z-score in the search beside the model's logit
_MOST_PIECES = 200
_LIKELY = 0.5  # probability from which a sentence is shown
_RISK = 0.2  # of an answer without a call
_AROUND = 120  # characters that are shown before and after the answer


@dataclass(frozen=True)
class Likely(Event):
    """The sentence that likely answers, and the words in it; the reader was not asked yet."""

    sentence: Passage
    answer: Span
    probability: float

    def line(self) -> str:
        page = "" if self.sentence.page is None else f", page {self.sentence.page}"
        at = self.answer.start - self.sentence.span.start
        before, after = max(0, at - _AROUND), at + len(self.answer) + _AROUND
        text = self.sentence.text
        said = "… " * (before > 0) + text[before:after].strip() + " …" * (after < len(text))
        return f"likely: “{said}” ({self.sentence.title}{page})"

    @property
    def lasting(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class Finding:
    """A passage, and what the model says of it.

    `share` are the odds that it answers, among the passages shown and none of them; even, where
    the model was not asked. `answer` is the likeliest place of the answer in it, `place_share` the
    logarithm of the odds that it stands there if the passage answers.
    """

    shown: Shown
    share: float = 0.5
    answer: Span | None = None
    place_share: float = 0.0

    @property
    def signs(self) -> tuple[float, float]:
        """The signs of the likeliest answer, for the promise of the way "found"."""
        return logit(self.share), self.place_share


@dataclass(frozen=True, eq=False)
class _Piece:
    """What the model says of a passage from a character on; places are those of its text."""

    start: int
    title: int  # characters before that
    found: Found

    def best(self) -> tuple[int, int, float]:
        """Return the start and end of the likeliest answer, and the logarithm of its odds."""
        place = self.found.best(self.title)
        assert place is not None
        moved = self.start - self.title
        return place[0] + moved, place[1] + moved, self.found.log_share(*place)


async def find(question: str, shown: Sequence[Shown], run: Run) -> list[Finding]:
    """Return where passages answer a question, the likeliest first.

    They are in the order of the model's logit plus a part of the z-score in the search. A sentence
    that more likely than not answers is shown to the person who asks. None are returned if question
    or documents are not in English, or there is too much to read.
    """
    shown = [each for each in shown if each.passage.text.strip()]
    passages = [each.passage for each in shown]
    english = run.language == "en" and not run.foreign
    if not (shown and english and await are_in_language("en", passages, run.sources)):
        return []
    pieces = await _read(question, passages, run)
    if not all(pieces):
        return []
    best = [max(of_one, key=lambda each: each.found.score) for of_one in pieces]
    scores = [each.found.score for each in best]
    none = np.logaddexp.reduce([0.0, *scores])
    searched = standardise([each.score for each in shown])
    order = sorted(range(len(shown)), key=lambda at: -(scores[at] + _SEARCH * searched[at]))
    findings = []
    for at in order:
        start, end, odds = best[at].best()
        share = math.exp(scores[at] - none)
        findings.append(Finding(shown[at], share, _place(passages[at], start, end), odds))
    probability = load_promise("found").probability(findings[0].signs)
    if probability >= _LIKELY:
        sentence, answer = await find_around(findings[0], run)
        run.emit(Likely(sentence, answer, probability))
    return findings


async def _read(question: str, passages: Sequence[Passage], run: Run) -> list[list[_Piece]]:
    """Return what the model says of passages, in pieces where they are too long for it.

    A passage has none if its title alone is too long, and all have none if there are too many.
    """
    model = run.reranker if isinstance(run.reranker, MiniLMReranker) else _open()
    pieces: list[list[_Piece]] = [[] for _ in passages]
    left = [(at, 0) for at in range(len(passages))]
    passes, began = 0, time.perf_counter()
    while left:
        passes += len(left)
        if passes > max(_MOST_PIECES, len(passages)):
            return [[] for _ in passages]
        texts = [titled_text(replace(passages[at], text=passages[at].text[n:])) for at, n in left]
        rest = []
        for (at, start), text, found in zip(
            left, texts, await model.find(question, texts), strict=True
        ):
            title = len(text) - len(passages[at].text) + start
            if found.best(title) is None:
                continue
            pieces[at].append(_Piece(start, title, found))
            if not found.whole:
                rest.append((at, start + int(found.places[-1, 1]) - title))
        left = rest
    seconds = time.perf_counter() - began
    run.meter.scoring(Role.SCORER, model.name, passes=passes, seconds=seconds)
    return pieces


async def find_around(finding: Finding, run: Run) -> tuple[Passage, Span]:
    """Return the sentence in which the answer was found, and the answer's place.

    An answer that goes over the end of a sentence has all that it touches.
    """
    assert finding.answer is not None
    document = await run.document(finding.answer.document_id)
    within = finding.shown.passage.span
    around = await asyncio.to_thread(widen_to_sentences, document, finding.answer, within)
    return document.passage(around), finding.answer


async def answer_found(question: str, shown: Sequence[Shown], run: Run) -> Answer | None:
    """Return what is found without a call, with its sentence, if it is surely right.

    At most a fifth of such answers may be wrong, or the run's risk if that is smaller.
    """
    findings = await find(question, shown, run)
    if not findings:
        return None
    best, promise = findings[0], load_promise("found")
    probability = promise.probability(best.signs)
    if probability < promise.limit(min(run.risk or _RISK, _RISK)):
        return None
    sentence, place = await find_around(best, run)
    documents = await run.documents_of([sentence])
    document = documents[place.document_id]
    seen = visible_text(sentence.span, document, best.shown.passage)
    short = " ".join(document.slice(place).split())
    if len(sentence.span) > LONGEST_QUOTE or short not in " ".join(seen.split()):
        return None
    stated = state_found(short, sentence.span, "found", seen)
    evidence = tuple(each.shown.evidence for each in findings)
    refused = Answer(question, "", NOT_FOUND, False, evidence=evidence)
    cited = replace(write_answer([stated], documents), short=short)
    return replace(finish(refused, cited, run), probability=probability)


def state_found(short: str, span: Span, how: str, seen: str) -> Stated:
    """Return a statement: a short answer and its sentence, of which the reader saw this."""
    sentence = remove_model_marks(" ".join(blank_notes(seen).split()))
    text = f"{short.rstrip('.')}: “{sentence}”"
    if short.casefold() == sentence.casefold():
        text = sentence
    return Stated(text, (Place(span, how, Verdict.SUPPORTED),))


def _place(passage: Passage, start: int, end: int) -> Span:
    """Return the document's span of a part of a passage's text."""
    if isinstance(passage, CompressedPassage):
        return passage.back(start, end)
    return Span(passage.document_id, passage.span.start + start, passage.span.start + end)


@cache
def _open() -> MiniLMReranker:
    return MiniLMReranker()
