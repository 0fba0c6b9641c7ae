"""Which text of an outcome is scored, and what is taken off texts before they are compared."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache

from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question, QuestionTask
from colligate.readers.plain import take_final_answer

Score = Callable[[str], Mapping[str, float]]


def score_both(score: Score, outcome: Outcome) -> dict[str, float]:
    """Return the scores of the short answer (or the whole), and of the whole as `NAME_raw`.

    Containment in the whole counts the short answer in: it is a part of what was answered.
    """
    scored = cache(score)
    short = scored(take_short(outcome) or take_whole(outcome))
    whole = {
        name: max(value, short[name]) if name.startswith("containment") else value
        for name, value in scored(take_whole(outcome)).items()
    }
    return {**short, **{f"{name}_raw": value for name, value in whole.items()}}


def score_separately(score: Score, outcome: Outcome) -> dict[str, float]:
    """Return the same, and for DualRAG `NAME_short` and `NAME_max`.

    These are the short answer's own (0 without one), and the better of it and the whole's.
    """
    whole, cut = score(take_whole(outcome)), score(take_short(outcome))
    scores = score_both(score, outcome)
    for name in whole:
        scores |= {f"{name}_short": cut[name], f"{name}_max": max(whole[name], cut[name])}
    return scores


def take_whole(outcome: Outcome) -> str:
    """Return the whole answer without marks; empty where it refused or failed."""
    return remove_citation_marks(outcome.text) if outcome.answered else ""


def take_short(outcome: Outcome) -> str:
    """Return the short answer; empty where there is none, or it refused or failed."""
    return remove_citation_marks(outcome.short) if outcome.answered else ""


def take_final(outcome: Outcome) -> str:
    """Return the short answer, or what follows the last "So the final answer is:", or the whole."""
    return take_short(outcome) or take_final_answer(take_whole(outcome))


def wants_short(question: Question) -> bool:
    """Tell whether a few words are asked for, and which are right is known."""
    return question.task is QuestionTask.SHORT and bool(question.answers)


def list_golds(question: Question) -> tuple[str, ...]:
    """Return the right answers as texts: whole ones where there are any."""
    if question.task not in (QuestionTask.SHORT, QuestionTask.READINGS, QuestionTask.LONG):
        return ()
    return question.long_answers or question.answers


def list_long_golds(question: Question) -> tuple[str, ...]:
    """Return the right answers that are whole paragraphs."""
    is_long = question.task is QuestionTask.LONG
    return question.long_answers or (question.answers if is_long else ())


# Normalising

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")

MARK = r"\[(?:\d{1,3}(?:\s*[,;]\s*\d{1,3})*|uncited)\]"
"""Of a citation. Four digits are a year, as in "[2019] UKSC 5"."""

_MARK = re.compile(rf"[^\S\n]*{MARK}")

Normaliser = Callable[[str], str]


def remove_citation_marks(text: str) -> str:
    """Return a text without the marks of its citations.

    >>> remove_citation_marks("It rained in May [1][2]. It was cold [uncited].")
    'It rained in May. It was cold.'
    """
    return _MARK.sub("", text).strip()


def normalise_squad(text: str) -> str:
    """Normalise as SQuAD does: lower case, no ASCII punctuation, no articles, single blanks.

    Punctuation is deleted, not replaced by a blank; ’ and – are not ASCII and stay.

    >>> normalise_squad("The  Anglo-Saxons’ king")
    'anglosaxons’ king'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def normalise_dual(text: str) -> str:
    """Normalise as DualRAG does: as SQuAD after Unicode's NFD; marks split off letters stay."""
    return normalise_squad(unicodedata.normalize("NFD", text))


def first_line(text: str) -> str:
    """Return what is before the first line break, stripped; "" where a text begins with one."""
    return text.split("\n")[0].strip()


def prepare_alce(text: str) -> str:
    """Prepare an answer as ALCE's evaluation does: stripped, its first line, no citations."""
    return remove_citation_marks(first_line(text.strip()))
