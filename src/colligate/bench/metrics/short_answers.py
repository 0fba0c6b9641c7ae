"""Short answers against their golds: exact match, containment, F1 of words.

In all of them an empty prediction (a refusal, a failure) scores 0, and so does a question without
a gold. Scores are in [0, 1], the best over the golds.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

# What is taken off a text before it is compared: marks of citations, case, articles.

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARK = re.compile(r"\s*\[(?:\d+(?:\s*[,;]\s*\d+)*|uncited)\]")


def unmarked(text: str) -> str:
    """A text without the marks of its citations.

    >>> unmarked("It rained in May [1][2]. It was cold [uncited].")
    'It rained in May. It was cold.'
    """
    return _MARK.sub("", text).strip()


def squad(text: str) -> str:
    """SQuAD's normalisation: lower case, no ASCII punctuation, no articles, single blanks.

    Punctuation is deleted, not replaced by a blank; ’ and – are not ASCII and stay.

    >>> squad("The  Anglo-Saxons’ king")
    'anglosaxons’ king'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def dual(text: str) -> str:
    """DualRAG's: `squad` after Unicode's NFD; marks that were parts of letters stay."""
    return squad(unicodedata.normalize("NFD", text))


def first_line(text: str) -> str:
    """What stands before the first line break, without blanks around it.

    A text that begins with a line break has an empty first line, as in Lost in the Middle.
    """
    return text.split("\n")[0].strip()


def alce_output(text: str) -> str:
    """An answer as ALCE's evaluation prepares it: stripped, its first line, no citations."""
    return unmarked(first_line(text.strip()))


Normaliser = Callable[[str], str]
Golds = Sequence[str]

_CLOSED = ("yes", "no", "noanswer")


@dataclass(frozen=True)
class Overlap:
    """Words that a prediction shares with a gold, as shares of either and as F1."""

    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0


def em(prediction: str, golds: Golds, normalised: Normaliser = squad) -> float:
    """Exact match: the prediction is one of the golds, both normalised."""
    said = normalised(prediction)
    return float(bool(prediction.strip()) and any(normalised(gold) == said for gold in golds))


def containment(prediction: str, golds: Golds, normalised: Normaliser = squad) -> float:
    """A gold stands in the prediction, both normalised, anywhere: "art" stands in "party".

    A gold of which normalising leaves nothing stands in no prediction.
    """
    said = normalised(prediction)
    return float(any(gold in said for gold in map(normalised, golds) if gold))


def containment_first_line(prediction: str, golds: Golds) -> float:
    """Lost in the Middle's `best_subspan_em`: containment in the first line alone."""
    return containment(first_line(prediction), golds)


def overlap(prediction: str, golds: Golds, normalised: Normaliser = squad) -> Overlap:
    """Precision, recall and F1 of words, each the best over the golds by itself."""
    said = normalised(prediction).split()
    found = [_overlap(said, normalised(gold).split()) for gold in golds]
    return Overlap(
        _best(each.precision for each in found),
        _best(each.recall for each in found),
        _best(each.f1 for each in found),
    )


def f1_flashrag(prediction: str, golds: Golds) -> float:
    """FlashRAG's F1: 0 against a gold that differs where either is yes, no or noanswer."""
    said = squad(prediction)

    def against(gold: str) -> float:
        if said != gold and (said in _CLOSED or gold in _CLOSED):
            return 0.0
        return _overlap(said.split(), gold.split()).f1

    return _best(map(against, map(squad, golds)))


def f1_alce(prediction: str, golds: Golds) -> float:
    """ALCE's F1, for readers that may answer nothing: an empty text is right for an empty gold."""

    def against(gold: str) -> float:
        wanted, said = squad(gold).split(), squad(prediction).split()
        return _overlap(said, wanted).f1 if wanted and said else float(wanted == said)

    return _best(map(against, golds))


def short_scores(prediction: str, golds: Golds) -> dict[str, float]:
    """The group `short`."""
    shared = overlap(prediction, golds)
    return {
        "em": em(prediction, golds),
        "containment": containment(prediction, golds),
        "containment_first_line": containment_first_line(prediction, golds),
        "f1": shared.f1,
        "precision": shared.precision,
        "recall": shared.recall,
    }


def dual_scores(prediction: str, golds: Golds) -> dict[str, float]:
    """The group `dual`: DualRAG's normalisation, and containment of its name `acc`."""
    shared = overlap(prediction, golds, dual)
    return {
        "em_dual": em(prediction, golds, dual),
        "containment_dual": containment(prediction, golds, dual),
        "f1_dual": shared.f1,
        "precision_dual": shared.precision,
        "recall_dual": shared.recall,
    }


def _overlap(said: Sequence[str], wanted: Sequence[str]) -> Overlap:
    same = (Counter(said) & Counter(wanted)).total()
    if not same:
        return Overlap()
    precision, recall = same / len(said), same / len(wanted)
    return Overlap(precision, recall, 2 * precision * recall / (precision + recall))


def _best(values: Iterable[float]) -> float:
    return max(values, default=0.0)
