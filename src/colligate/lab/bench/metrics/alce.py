"""ALCE's measures of long answers: ASQA's readings, QAMPARI's lists, ELI5's claims.

After Gao et al., "Enabling Large Language Models to Generate Text with Citations" (EMNLP 2023) and
its code (princeton-nlp/ALCE). All prepare an answer with `prepare_alce`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from colligate.lab.bench.metrics.answers import (
    normalise_squad,
    prepare_alce,
    take_short,
    take_whole,
)
from colligate.lab.bench.metrics.groups import Entails, Measures, MetricGroup, Reads
from colligate.lab.bench.metrics.short_answers import containment, f1_alce
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question, QuestionReading


# ASQA, as ALCE and RDR2 measure it: which readings of the question an answer serves
def _measure_asqa(question: Question, outcome: Outcome) -> Measures | None:
    if not question.readings:
        return None
    return asqa_scores(take_whole(outcome), question.readings)


def asqa_scores(text: str, readings: Sequence[QuestionReading]) -> dict[str, float]:
    """Return STR-EM, HIT (all readings are served) and the number of words of an answer."""
    output = prepare_alce(text)
    share = str_em(output, readings)
    return {"str_em": share, "str_hit": float(share == 1), "length": float(len(output.split()))}


def str_em(text: str, readings: Sequence[QuestionReading]) -> float:
    """Return STR-EM: the share of readings of which the text contains an answer."""
    if not readings:
        return 0.0
    return sum(containment(text, reading.answers) for reading in readings) / len(readings)


async def disambiguation_scores(question: Question, outcome: Outcome, qa: Reads) -> Measures | None:
    """Return Disambig-F1, QA-EM and QA-HIT: means over readings, the best over a reading's answers.

    A reader looks for the answer to each reading in the text. A refusal scores 0, also on a reading
    whose answer normalises to nothing.
    """
    if not question.readings:
        return None
    output, readings, exact, f1 = prepare_alce(take_whole(outcome)), question.readings, 0, 0.0
    for reading in readings if output else ():
        said = await qa(reading.question, output)
        exact += any(normalise_squad(said) == normalise_squad(gold) for gold in reading.answers)
        f1 += f1_alce(said, reading.answers)
    return {
        "disambig_f1": f1 / len(readings),
        "qa_em": exact / len(readings),
        "qa_hit": float(exact == len(readings)),
    }


ALCE_ASQA = MetricGroup("alce_asqa", _measure_asqa, neutral=("length",))
ALCE_QA = MetricGroup("alce_qa", ask=disambiguation_scores, needs="qa")


# QAMPARI: a list of answers, separated by commas, against a set with aliases

_TOP = 5
_BULLET = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+")


def qampari_measures(question: Question, outcome: Outcome) -> Measures | None:
    """Return the scores of the short answer as a list, and of the whole as `NAME_raw`."""
    if not question.members:
        return None
    whole = take_whole(outcome)
    said = join_with_commas(take_short(outcome)) or whole
    scores = qampari_scores(whole, question.members)
    return {
        **qampari_scores(said, question.members),
        **{f"{name}_raw": value for name, value in scores.items()},
    }


def qampari_scores(text: str, members: Sequence[Sequence[str]]) -> dict[str, float]:
    """Return precision, recall, recall of at most five, and F1 with either.

    A prediction is right when it equals an alias after normalisation; containment is not enough.
    One that comes twice counts twice in precision.
    """
    items = prepare_alce(text).rstrip().rstrip(".").rstrip(",").split(",")
    said = [item for item in map(normalise_squad, items) if item]
    wanted = [{normalise_squad(alias) for alias in member} for member in members]
    right = sum(any(item in member for member in wanted) for item in said)
    hits = sum(any(item in member for item in said) for member in wanted)
    precision = right / len(said) if said else 0.0
    recall = hits / len(wanted) if wanted else 0.0
    recall_5 = min(_TOP, hits) / min(_TOP, len(wanted)) if wanted else 0.0
    return {
        "qampari_precision": precision,
        "qampari_recall": recall,
        "qampari_recall_5": recall_5,
        "qampari_f1": _harmonic_mean(precision, recall),
        "qampari_f1_5": _harmonic_mean(precision, recall_5),
    }


def join_with_commas(text: str) -> str:
    """Return a list that has one item a line as ALCE wants it: with commas, without bullets.

    >>> join_with_commas("1. Ann\\n2. Bob")
    'Ann, Bob'
    """
    return ", ".join(_BULLET.sub("", line, count=1) for line in text.splitlines() if line.strip())


def _harmonic_mean(first: float, second: float) -> float:
    return 2 * first * second / (first + second) if first + second else 0.0


QAMPARI = MetricGroup("qampari", qampari_measures)


# ELI5: which claims of a right answer the given one entails
async def claim_recall(question: Question, outcome: Outcome, nli: Entails) -> Measures | None:
    """Return the share of claims that an answer entails; an empty answer entails none."""
    if not question.claims:
        return None
    output = prepare_alce(take_whole(outcome))
    entailed = [await nli(output, each) for each in question.claims] if output else []
    return {"claim_recall": sum(entailed) / len(question.claims)}


ELI5 = MetricGroup("eli5", ask=claim_recall, needs="nli")
