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
from typing import NamedTuple

import numpy as np

from colligate.core.answer import NOT_FOUND, Answer, Place, Stated, Verdict
from colligate.core.events import Event, name_places
from colligate.core.run import Run, Shown
from colligate.documents import Passage, Span
from colligate.documents.compress import CompressedPassage, visible_text
from colligate.documents.sentences import blank_notes, widen_to_sentences
from colligate.library.ranking import are_in_language, standardise, titled_text
from colligate.models import Role
from colligate.models.pairs import MiniLMReranker
from colligate.readers.citing import LONGEST_QUOTE, finish, remove_model_marks, write_answer
from colligate.readers.promise import FOUND, load_promise, logit

_SEARCH = 0.5  # weight of the z-score in the search beside the model's logit; not searched for
_MOST_PARTS = 200  # of passages, with 256 tokens each: about four seconds
_LIKELY = 0.5  # probability from which a sentence is shown as likely: rather than not
_RISK = 0.2  # of an answer without a call
_AROUND = 120  # characters that are shown before and after the answer


@dataclass(frozen=True)
class Likely(Event):
    """The sentence that likely answers, and the words in it; the reader was not asked yet."""

    sentence: Passage
    answer: Span
    probability: float

    def line(self) -> str:
        at = self.answer.start - self.sentence.span.start
        before, after = max(0, at - _AROUND), at + len(self.answer) + _AROUND
        text = self.sentence.text
        said = "… " * (before > 0) + text[before:after].strip() + " …" * (after < len(text))
        return f"likely: “{said}” ({name_places([self.sentence])})"

    lasting = True


@dataclass(frozen=True)
class Finding:
    """A passage, and what the model says of it.

    `share` is the probability that this passage answers: those of all passages shown, and that none
    does, sum to 1. `answer` is the likeliest place of the answer in it, `place_share` the logarithm
    of the odds that it stands there if the passage answers.
    """

    shown: Shown
    share: float
    answer: Span | None = None
    place_share: float = 0.0

    @property
    def signs(self) -> tuple[float, float]:
        """What tells how probable the likeliest answer is, without a reader."""
        return logit(self.share), self.place_share


class _Spot(NamedTuple):
    """The score of a part of a passage, and the likeliest answer in it, in the passage's text."""

    score: float
    start: int
    end: int
    log_share: float


async def find(question: str, shown: Sequence[Shown], run: Run) -> list[Finding]:
    """Return where passages answer a question, the likeliest first.

    They are in the order of the model's logit plus a part of the z-score in the search. None are
    returned if question or documents are not in English, or there is too much to read.
    """
    shown = [each for each in shown if each.passage.text.strip()]
    passages = [each.passage for each in shown]
    english = run.language == "en" and not run.foreign
    if not (shown and english and await are_in_language("en", passages, run.sources)):
        return []
    spots = await _read(question, passages, run)
    if not spots:
        return []
    none = np.logaddexp.reduce([0.0, *(spot.score for spot in spots)])
    searched = standardise([each.score for each in shown])
    order = sorted(range(len(shown)), key=lambda at: -(spots[at].score + _SEARCH * searched[at]))
    return [
        Finding(
            shown[at],
            math.exp(spots[at].score - none),
            _place(passages[at], spots[at].start, spots[at].end),
            spots[at].log_share,
        )
        for at in order
    ]


async def _read(question: str, passages: Sequence[Passage], run: Run) -> list[_Spot]:
    """Return the best part of each passage; a passage that is too long is read in parts.

    None are returned if a title alone is too long, or there are too many parts.
    """
    model = run.reranker if isinstance(run.reranker, MiniLMReranker) else _open()
    best: dict[int, _Spot] = {}
    left = [(at, 0) for at in range(len(passages))]
    passes, began = 0, time.perf_counter()
    while left:
        passes += len(left)
        if passes > max(_MOST_PARTS, len(passages)):
            return []
        texts = [titled_text(replace(passages[at], text=passages[at].text[n:])) for at, n in left]
        read = await model.find(question, texts)
        rest = []
        for (at, start), text, found in zip(left, texts, read, strict=True):
            title = len(text) - len(passages[at].text) + start
            if (place := found.best(title)) is None:
                continue
            first, last = (end - title + start for end in place)
            spot = _Spot(found.score, first, last, found.log_share(*place))
            best[at] = max(best.get(at, spot), spot)
            if not found.whole:
                rest.append((at, start + int(found.places[-1, 1]) - title))
        left = rest
    seconds = time.perf_counter() - began
    run.meter.scoring(Role.SCORER, model.name, passes=passes, seconds=seconds)
    return [best[at] for at in range(len(passages))] if len(best) == len(passages) else []


async def show_likely(finding: Finding, run: Run) -> None:
    """Show the sentence of the likeliest answer, if it more likely than not answers."""
    probability = load_promise("found").probability(finding.signs)
    if finding.answer is not None and probability >= _LIKELY:
        run.emit(Likely(await find_sentence(finding, run), finding.answer, probability))


async def find_sentence(finding: Finding, run: Run) -> Passage:
    """Return the sentence in which the answer was found, or all sentences that it touches."""
    assert finding.answer is not None
    document = await run.document(finding.answer.document_id)
    within = finding.shown.passage.span
    around = await asyncio.to_thread(widen_to_sentences, document, finding.answer, within)
    return document.passage(around)


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
    assert best.answer is not None
    sentence = await find_sentence(best, run)
    documents = await run.documents_of([sentence])
    document = documents[sentence.document_id]
    seen = visible_text(sentence.span, document, best.shown.passage)
    short = " ".join(document.slice(best.answer).split())
    if len(sentence.span) > LONGEST_QUOTE or short not in " ".join(seen.split()):
        return None
    stated = state_found(short, sentence.span, FOUND, seen)
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
