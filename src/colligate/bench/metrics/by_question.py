"""What each group of metrics says of an answerable question; None where that is nothing.

Those that ask a model are given `Backends` that have it (`catalogue.require`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from colligate.bench.metrics import answers, citations, judging, rouge
from colligate.bench.metrics.backends import Backends, Entails, Reads
from colligate.bench.metrics.evidence import documents_of, searched, short_answers_of
from colligate.bench.metrics.retrieval import hit_scores, retrieval_scores
from colligate.bench.metrics.short_answers import (
    alce_output,
    containment,
    dual_scores,
    f1_alce,
    f1_flashrag,
    short_scores,
    squad,
)
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question, Reading, Task
from colligate.errors import ColligateError

# ASQA, as ALCE and RDR2 measure it: which readings of the question an answer serves.


def str_em(text: str, readings: Sequence[Reading]) -> float:
    """STR-EM: the share of readings of which an answer stands in the text."""
    if not readings:
        return 0.0
    return sum(containment(text, reading.answers) for reading in readings) / len(readings)


def asqa_scores(text: str, readings: Sequence[Reading]) -> dict[str, float]:
    """STR-EM, HIT (all readings are served) and words of an answer, prepared as ALCE does."""
    output = alce_output(text)
    share = str_em(output, readings)
    return {"str_em": share, "str_hit": float(share == 1), "length": float(len(output.split()))}


# ELI5's claim recall: which claims of a right answer the given one entails.


async def claim_recall(text: str, claims: Sequence[str], nli: Entails) -> float:
    """The share of claims that an answer entails, prepared as ALCE does; an empty one has none."""
    output = alce_output(text)
    if not output or not claims:
        return 0.0
    entailed = [await nli.entails(output, claim) for claim in claims]
    return sum(entailed) / len(claims)


# What an answer cost, from the usage that its outcome keeps.

_BY_ROLE = ("calls", "input_tokens", "output_tokens")


def cost_measures(outcome: Outcome) -> dict[str, float]:
    """Calls, tokens, scoring passes, rounds of retrieval, seconds and US dollars.

    `usd` is left out where a price is not known, `seconds` where models' replies were remembered.
    Calls and tokens are also given by role, as `NAME_ROLE`. An answer that failed costs what was
    spent until then.
    """
    usage = outcome.usage
    into, out = float(usage.get("input_tokens", 0)), float(usage.get("output_tokens", 0))
    measures = {
        "calls": float(usage.get("calls", 0)),
        "input_tokens": into,
        "output_tokens": out,
        "tokens": into + out,
        "scoring_passes": float(usage.get("scoring_passes", 0)),
        "rounds": float(usage.get("retrieval_rounds", 0)),
    }
    if not usage.get("remembered"):
        measures["seconds"] = outcome.seconds
    if (usd := usage.get("cost_usd", 0.0)) is not None:
        measures["usd"] = float(usd)
    for role, sums in usage.get("by_role", {}).items():
        for name in _BY_ROLE:
            measures[f"{name}_{role}"] = float(sums.get(name, 0))
    return measures


# ASQA's Disambig-F1: what a reader finds in the answer for each reading of the question.


async def disambiguation_scores(
    text: str, readings: Sequence[Reading], qa: Reads
) -> dict[str, float]:
    """Disambig-F1, QA-EM and QA-HIT: means over the readings, the best over a reading's answers.

    A refusal scores 0, also on a reading whose answer normalises to nothing.
    """
    output = alce_output(text)
    if not output or not readings:
        return {"disambig_f1": 0.0, "qa_em": 0.0, "qa_hit": 0.0}
    found = [await qa.read(reading.question, output) for reading in readings]
    pairs = list(zip(found, readings, strict=True))
    exact = sum(any(squad(said) == squad(a) for a in each.answers) for said, each in pairs)
    f1 = sum(f1_alce(said, each.answers) for said, each in pairs)
    return {
        "disambig_f1": f1 / len(readings),
        "qa_em": exact / len(readings),
        "qa_hit": float(exact == len(readings)),
    }


# RDR2's metrics of the passages that are handed to a reader, best first.

DEPTH = 5  # RDR2's k


def passage_scores(
    passages: Sequence[str], readings: Sequence[Reading], k: int = DEPTH
) -> dict[str, float]:
    """P-EM, P-HIT, P-SCORE and P-LEN of the first `k` passages.

    P-EM and P-HIT are STR-EM and HIT of the passages together. P-SCORE is the mean over `k` ranks
    of STR-EM divided by the rank: .4567 is all there is to have for 5. P-LEN is the mean of words
    over `k` slots. A rank without a passage counts 0.
    """
    first = passages[:k]
    together = str_em("\n".join(first), readings)
    by_rank = sum(str_em(text, readings) / rank for rank, text in enumerate(first, 1))
    return {
        "p_em": together,
        "p_hit": float(together == 1),
        "p_score": by_rank / k,
        "p_len": sum(len(text.split()) for text in first) / k,
    }


# QAMPARI: a list of answers, separated by commas, against a set with aliases.

_TOP = 5
_BULLET = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+")


def in_commas(text: str) -> str:
    """A list that was written a line each as ALCE wants it; one that has commas as it is.

    >>> in_commas("1. Ann\\n2. Bob")
    'Ann, Bob'
    """
    return ", ".join(_BULLET.sub("", line, count=1) for line in text.splitlines() if line.strip())


def qampari_scores(text: str, members: Sequence[Sequence[str]]) -> dict[str, float]:
    """Precision, recall, recall of at most five, and F1 with either, as ALCE computes them.

    A prediction is right when it is an alias after normalisation; containment is not enough. One
    said twice counts twice in precision.
    """
    items = alce_output(text).rstrip().rstrip(".").rstrip(",").split(",")
    said = [item for item in map(squad, items) if item]
    wanted = [{squad(alias) for alias in member} for member in members]
    right = sum(any(item in member for member in wanted) for item in said)
    hits = sum(any(item in member for item in said) for member in wanted)
    precision = right / len(said) if said else 0.0
    recall = hits / len(wanted) if wanted else 0.0
    recall_5 = min(_TOP, hits) / min(_TOP, len(wanted)) if wanted else 0.0
    return {
        "qampari_precision": precision,
        "qampari_recall": recall,
        "qampari_recall_5": recall_5,
        "qampari_f1": _harmonic(precision, recall),
        "qampari_f1_5": _harmonic(precision, recall_5),
    }


def _harmonic(first: float, second: float) -> float:
    return 2 * first * second / (first + second) if first + second else 0.0


Measures = Mapping[str, float]
"""Values by name."""


def short(question: Question, outcome: Outcome) -> Measures | None:
    """Exact match, containment, F1 of a short answer."""
    if not _is_short(question):
        return None
    return answers.with_raw(lambda text: short_scores(text, question.answers), outcome)


def dual(question: Question, outcome: Outcome) -> Measures | None:
    """The same as DualRAG normalises and reports."""
    if not _is_short(question):
        return None
    return answers.apart(lambda text: dual_scores(text, question.answers), outcome)


def dual_rouge(question: Question, outcome: Outcome) -> Measures | None:
    """DualRAG's ROUGE, of short and of long answers."""
    golds = _golds(question)
    if not golds:
        return None
    return answers.apart(lambda text: rouge.dual_rouge(text, golds), outcome)


def flashrag(question: Question, outcome: Outcome) -> Measures | None:
    """FlashRAG's F1: of a long answer the whole is scored under both names."""
    golds = _golds(question)
    if not golds:
        return None
    whole = answers.raw(outcome)
    said = answers.final(outcome) if _is_short(question) else whole
    return {"f1_flashrag": f1_flashrag(said, golds), "f1_flashrag_raw": f1_flashrag(whole, golds)}


def alce_asqa(question: Question, outcome: Outcome) -> Measures | None:
    """Readings that the answer serves."""
    if not question.readings:
        return None
    return asqa_scores(answers.raw(outcome), question.readings)


async def alce_qa(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    """What a reader finds in the answer for each reading."""
    if not question.readings:
        return None
    assert given.qa is not None
    return await disambiguation_scores(answers.raw(outcome), question.readings, given.qa)


def long(question: Question, outcome: Outcome) -> Measures | None:
    """ROUGE-L and ROUGE-Lsum against whole answers, and the words of the answer."""
    golds = question.long_answers or (question.answers if question.task is Task.LONG else ())
    if not golds:
        return None
    said = answers.raw(outcome)
    return {**rouge.long_rouge(said, golds), "length": float(len(alce_output(said).split()))}


def qampari(question: Question, outcome: Outcome) -> Measures | None:
    """A list against a set."""
    if not question.members:
        return None
    whole = answers.raw(outcome)
    said = in_commas(answers.short(outcome)) or whole
    scores = qampari_scores(whole, question.members)
    return {
        **qampari_scores(said, question.members),
        **{f"{name}_raw": value for name, value in scores.items()},
    }


async def eli5(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    """Claims that the answer entails."""
    if not question.claims:
        return None
    assert given.nli is not None
    recall = await claim_recall(answers.raw(outcome), question.claims, given.nli)
    return {"claim_recall": recall}


def retrieval(question: Question, outcome: Outcome) -> Measures | None:
    """The ranking of what searches returned: by document, and by passage for an answer in it.

    Raises:
        ColligateError: the passages come without their texts, as a row keeps them.
    """
    if not searched(outcome):
        return None
    measures: dict[str, float] = {}
    if question.gold:
        grades = question.meta.get("qrels") or dict.fromkeys(question.gold, 1)  # BEIR's
        measures.update(retrieval_scores(documents_of(outcome.retrieved), grades))
    if answers_in_words := short_answers_of(question):
        texts = [piece.text for piece in outcome.retrieved]
        if texts and not any(texts):
            raise ColligateError(
                "hit_at_K cannot be measured of a row",
                "it keeps the places of retrieved passages without their texts",
                "ask the question again",
            )
        measures.update(hit_scores(texts, answers_in_words))
    return measures or None


def passages(question: Question, outcome: Outcome) -> Measures | None:
    """Readings that the best passages serve; a short question is one reading."""
    readings = question.readings
    if not readings and _is_short(question):
        readings = (Reading(question.text, question.answers),)
    if not readings:
        return None
    return passage_scores([piece.text for piece in outcome.evidence], readings)


async def nli_citations(question: Question, outcome: Outcome, given: Backends) -> Measures:
    """Whether cited passages entail what cites them."""
    assert given.nli is not None
    return await citations.nli_citation_measures(outcome, given.nli)


async def judge_dual(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    """DualRAG's judge; a text that is both the whole and the short answer is asked about once."""
    if question.task not in (Task.SHORT, Task.JUDGED) or not question.answers:
        return None
    assert given.judge is not None
    judged = {
        text: await judging.implies(given.judge, question.text, text, question.answers)
        for text in dict.fromkeys([answers.raw(outcome), answers.short(outcome)])
    }
    return answers.apart(lambda text: {"judge_dual": judged[text]}, outcome)


async def loong_official(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    """Loong's judge by its own protocol."""
    if question.task is not Task.JUDGED:
        return None
    assert given.judge is not None
    return await judging.loong_official(given.judge, question, answers.raw(outcome))


async def loong_spd(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    """Loong's judge by SPD-RAG's protocol."""
    if question.task is not Task.JUDGED:
        return None
    assert given.judge is not None
    return await judging.loong_spd(given.judge, question, answers.raw(outcome))


def cost(_: Question, outcome: Outcome) -> Measures:
    """What the answer cost, whatever the question."""
    return cost_measures(outcome)


def _is_short(question: Question) -> bool:
    return question.task is Task.SHORT and bool(question.answers)


def _golds(question: Question) -> tuple[str, ...]:
    """Right answers as texts: whole ones where there are any."""
    if question.task not in (Task.SHORT, Task.READINGS, Task.LONG):
        return ()
    return question.long_answers or question.answers


# Refusals, right ones and wrong ones apart; what broke is neither.


def abstention_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """`right_refusal` where the documents hold no answer, else `wrong_refusal`; and `failed`.

    Of a question that brings neither an answer nor gold nobody knows which a refusal is.
    """
    measures = {"failed": float(bool(outcome.error))}
    refused = float(not outcome.found and not outcome.error)
    if not question.answerable:
        measures["right_refusal"] = refused
    elif _has_an_answer(question):
        measures["wrong_refusal"] = refused
    return measures


def _has_an_answer(question: Question) -> bool:
    known = (question.answers, question.gold, question.readings, question.members, question.claims)
    return any(known) or bool(question.long_answers)
