"""Short answers against their golds: exact match, containment, F1 of words.

In all of them an empty prediction (a refusal, a failure) scores 0, and so does a question without
a gold. Scores are in [0, 1], the best over the golds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from colligate.lab.bench.metrics import answers
from colligate.lab.bench.metrics.groups import Measures, MetricGroup
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question

Golds = Sequence[str]

_CLOSED = ("yes", "no", "noanswer")


def _measure_short(question: Question, outcome: Outcome) -> Measures | None:
    if not answers.wants_short(question):
        return None

    def score(text: str) -> dict[str, float]:
        in_first = containment_first_line(text, question.answers)
        return {**word_scores(text, question.answers), "containment_first_line": in_first}

    return answers.score_both(score, outcome)


def _measure_dual(question: Question, outcome: Outcome) -> Measures | None:
    """DualRAG calls its containment `acc`."""
    if not answers.wants_short(question):
        return None

    def score(text: str) -> dict[str, float]:
        found = word_scores(text, question.answers, answers.normalise_dual)
        return {f"{name}_dual": value for name, value in found.items()}

    return answers.score_separately(score, outcome)


def _measure_flashrag(question: Question, outcome: Outcome) -> Measures | None:
    """Of a long answer the whole is scored under both names."""
    golds = answers.list_golds(question)
    if not golds:
        return None
    whole = answers.take_whole(outcome)
    said = answers.take_final(outcome) if answers.wants_short(question) else whole
    return {"f1_flashrag": f1_flashrag(said, golds), "f1_flashrag_raw": f1_flashrag(whole, golds)}


SHORT = MetricGroup("short", _measure_short, neutral=("answer_words",))
DUAL = MetricGroup("dual", _measure_dual)
FLASHRAG = MetricGroup("flashrag", _measure_flashrag)


def word_scores(
    prediction: str, golds: Golds, normalise: answers.Normaliser = answers.normalise_squad
) -> dict[str, float]:
    """Return exact match, containment, F1, precision, recall, and how many words there are."""
    return {
        "answer_words": float(len(prediction.split())),
        "em": exact_match(prediction, golds, normalise),
        "containment": containment(prediction, golds, normalise),
        **word_overlap(prediction, golds, normalise)._asdict(),
    }


def exact_match(
    prediction: str, golds: Golds, normalise: answers.Normaliser = answers.normalise_squad
) -> float:
    """Return 1 where the prediction equals one of the golds, both normalised."""
    said = normalise(prediction)
    return float(bool(prediction.strip()) and any(normalise(gold) == said for gold in golds))


def containment(
    prediction: str, golds: Golds, normalise: answers.Normaliser = answers.normalise_squad
) -> float:
    """Return 1 where the prediction contains a gold, both normalised: "party" contains "art".

    A gold of which normalising leaves nothing is contained only in a prediction that equals it. So
    containment is never below exact match.
    """
    said = normalise(prediction)
    contained = any(gold in said for gold in map(normalise, golds) if gold)
    return max(float(contained), exact_match(prediction, golds, normalise))


def containment_first_line(prediction: str, golds: Golds) -> float:
    """Return Lost in the Middle's `best_subspan_em`: containment in the first line alone."""
    return containment(answers.first_line(prediction), golds)


class WordOverlap(NamedTuple):
    """Words that a prediction shares with a gold, as shares of either and as F1."""

    precision: float = 0.0
    recall: float = 0.0
    f1: float = 0.0


def word_overlap(
    prediction: str, golds: Golds, normalise: answers.Normaliser = answers.normalise_squad
) -> WordOverlap:
    """Return precision, recall and F1 of words, each separately the best over the golds."""
    said = normalise(prediction).split()
    found = [_overlap(said, normalise(gold).split()) for gold in golds]
    return WordOverlap(*map(max, zip(*found, strict=True))) if found else WordOverlap()


def f1_flashrag(prediction: str, golds: Golds) -> float:
    """Return FlashRAG's F1: 0 against a different gold where either is yes, no or noanswer."""
    said = answers.normalise_squad(prediction)

    def against(gold: str) -> float:
        if said != gold and (said in _CLOSED or gold in _CLOSED):
            return 0.0
        return _overlap(said.split(), gold.split()).f1

    return _best(map(against, map(answers.normalise_squad, golds)))


def f1_alce(prediction: str, golds: Golds) -> float:
    """Return ALCE's F1, in which an empty prediction is right for an empty gold."""
    said = answers.normalise_squad(prediction).split()

    def against(gold: str) -> float:
        wanted = answers.normalise_squad(gold).split()
        return _overlap(said, wanted).f1 if wanted and said else float(wanted == said)

    return _best(map(against, golds))


def _overlap(said: Sequence[str], wanted: Sequence[str]) -> WordOverlap:
    same = (Counter(said) & Counter(wanted)).total()
    if not same:
        return WordOverlap()
    precision, recall = same / len(said), same / len(wanted)
    return WordOverlap(precision, recall, 2 * precision * recall / (precision + recall))


def _best(values: Iterable[float]) -> float:
    return max(values, default=0.0)
