"""What each group of metrics says of an answerable question; None where that is nothing.

Those that ask a model are given `Backends` that have it (`catalogue.require`).
"""

from __future__ import annotations

from collections.abc import Mapping

from colligate.errors import ColligateError
from colligate.evaluation.metrics import answers, citations, judging, rouge
from colligate.evaluation.metrics.asqa import asqa_scores
from colligate.evaluation.metrics.backends import Backends
from colligate.evaluation.metrics.claims import claim_recall
from colligate.evaluation.metrics.costs import cost_measures
from colligate.evaluation.metrics.disambiguation import disambiguation_scores
from colligate.evaluation.metrics.evidence import documents_of, searched, short_answers_of
from colligate.evaluation.metrics.normalising import alce_output
from colligate.evaluation.metrics.passages import passage_scores
from colligate.evaluation.metrics.qampari import in_commas, qampari_scores
from colligate.evaluation.metrics.retrieval import hit_scores, retrieval_scores
from colligate.evaluation.metrics.short_answers import dual_scores, f1_flashrag, short_scores
from colligate.evaluation.outcome import Outcome
from colligate.evaluation.question import Question, Reading, Task

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
