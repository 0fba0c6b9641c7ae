"""Every group of metrics by its name, and how the metrics of an outcome are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from colligate.errors import MissingExtra, UsageError
from colligate.evaluation.metrics.abstention import abstention_measures
from colligate.evaluation.metrics.answers import apart, final, raw, short, with_raw
from colligate.evaluation.metrics.asqa import asqa_scores
from colligate.evaluation.metrics.backends import Backends, MissingBackend
from colligate.evaluation.metrics.citations import citation_measures, nli_citation_measures
from colligate.evaluation.metrics.claims import claim_recall
from colligate.evaluation.metrics.costs import cost_measures
from colligate.evaluation.metrics.disambiguation import disambiguation_scores
from colligate.evaluation.metrics.evidence import documents_of, evidence_measures, searched
from colligate.evaluation.metrics.judging import implies, loong_official, loong_spd
from colligate.evaluation.metrics.mauve import mauve_of_run
from colligate.evaluation.metrics.normalising import alce_output
from colligate.evaluation.metrics.passages import passage_scores
from colligate.evaluation.metrics.qampari import qampari_scores
from colligate.evaluation.metrics.retrieval import retrieval_scores
from colligate.evaluation.metrics.rouge import dual_rouge, long_rouge, rouge_of_run
from colligate.evaluation.metrics.short_answers import dual_scores, f1_flashrag, short_scores
from colligate.evaluation.outcome import Outcome
from colligate.evaluation.question import Question, Reading, Task

Measures = Mapping[str, float]
Need = Literal["", "judge", "nli", "qa", "bench"]
PerQuestion = Callable[[Question, Outcome], Measures | None]
Asking = Callable[[Question, Outcome, Backends], Awaitable[Measures | None]]


@dataclass(frozen=True)
class Group:
    """Metrics that are taken together.

    `per_question` computes them, or `asking` asks a model for them; either gives None where they
    say nothing of such a question. `needs` is the model that is asked, or "bench" for packages of
    that extra, `modules`.
    """

    name: str
    what: str
    source: str
    per_question: PerQuestion | None = None
    asking: Asking | None = None
    needs: Need = ""
    modules: tuple[str, ...] = ()


def require(groups: Sequence[str], backends: Backends) -> None:
    """Raise unless all these groups can be measured; nothing is asked.

    Raises:
        UsageError: there is no such group.
        MissingBackend: a group's model was not given.
        MissingExtra: a group's package is not installed.
    """
    for name in groups:
        group = _group(name)
        if group.needs in ("judge", "nli", "qa") and getattr(backends, group.needs) is None:
            raise MissingBackend(
                f"the metrics {name} cannot be measured",
                f"they need a model ({group.needs}) and none was given",
                "give one with --judge"
                if group.needs == "judge"
                else f"give a {group.needs} model",
            )
        for module in group.modules:
            if find_spec(module) is None:
                raise MissingExtra(
                    f"the metrics {name} need {module}",
                    "it is not installed",
                    "pip install 'colligate[bench]'",
                )


async def measured(
    groups: Sequence[str], question: Question, outcome: Outcome, backends: Backends | None = None
) -> dict[str, float]:
    """The metrics of all these groups that say anything of this question.

    A refusal or a failure scores 0 in all that measure the answer; it is left out of none.

    Raises:
        UsageError: there is no such group, or its model or package is missing.
        ModelError: a model that was asked failed.
    """
    given = backends or Backends()
    require(groups, given)
    found: dict[str, float] = {}
    for name in groups:
        group = _group(name)
        if group.asking is not None:
            measures = await group.asking(question, outcome, given)
        elif group.per_question is None:
            continue
        elif group.modules:  # slow enough to keep an event loop waiting
            measures = await asyncio.to_thread(group.per_question, question, outcome)
        else:
            measures = group.per_question(question, outcome)
        found.update(measures or {})
    return found


def higher_is_better(metric: str) -> bool:
    """Whether more of a metric is better; of costs, lengths and wrong refusals less is."""
    return not metric.startswith(_LOWER)


_LOWER = (
    *("calls", "tokens", "input_tokens", "output_tokens", "scoring_passes", "rounds", "seconds"),
    *("usd", "length", "p_len", "evidence_words", "wrong_refusal", "failed"),
)


def _group(name: str) -> Group:
    if name not in GROUPS:
        raise UsageError(f"there are no metrics {name}", "", f"they are {', '.join(GROUPS)}")
    return GROUPS[name]


# What each group says of a question


def _is_short(question: Question) -> bool:
    return question.task is Task.SHORT and question.answerable and bool(question.answers)


def _short(question: Question, outcome: Outcome) -> Measures | None:
    if not _is_short(question):
        return None
    return with_raw(lambda text: short_scores(text, question.answers), outcome)


def _dual(question: Question, outcome: Outcome) -> Measures | None:
    if not _is_short(question):
        return None
    return apart(lambda text: dual_scores(text, question.answers), outcome)


def _dual_rouge(question: Question, outcome: Outcome) -> Measures | None:
    golds = question.long_answers or question.answers
    asked = question.task in (Task.SHORT, Task.READINGS, Task.LONG)
    if not asked or not question.answerable or not golds:
        return None
    return apart(lambda text: dual_rouge(text, golds), outcome)


def _flashrag(question: Question, outcome: Outcome) -> Measures | None:
    if _is_short(question):
        return {
            "f1_flashrag": f1_flashrag(final(outcome), question.answers),
            "f1_flashrag_raw": f1_flashrag(raw(outcome), question.answers),
        }
    golds = question.long_answers or question.answers
    if question.task not in (Task.READINGS, Task.LONG) or not golds:
        return None
    whole = f1_flashrag(raw(outcome), golds)
    return {"f1_flashrag": whole, "f1_flashrag_raw": whole}


def _alce_asqa(question: Question, outcome: Outcome) -> Measures | None:
    return asqa_scores(raw(outcome), question.readings) if question.readings else None


async def _alce_qa(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    if not question.readings:
        return None
    assert given.qa is not None
    return await disambiguation_scores(raw(outcome), question.readings, given.qa)


def _long(question: Question, outcome: Outcome) -> Measures | None:
    golds = question.long_answers or (question.answers if question.task is Task.LONG else ())
    if not golds:
        return None
    words = len(alce_output(raw(outcome)).split())
    return {**long_rouge(raw(outcome), golds), "length": float(words)}


def _qampari(question: Question, outcome: Outcome) -> Measures | None:
    if not question.members:
        return None
    return with_raw(lambda text: qampari_scores(text, question.members), outcome)


async def _eli5(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    if not question.claims:
        return None
    assert given.nli is not None
    return {"claim_recall": await claim_recall(raw(outcome), question.claims, given.nli)}


def _retrieval(question: Question, outcome: Outcome) -> Measures | None:
    if not question.gold or not searched(outcome):
        return None
    return retrieval_scores(documents_of(outcome.retrieved), question.gold)


def _passages(question: Question, outcome: Outcome) -> Measures | None:
    readings = question.readings
    if not readings and _is_short(question):
        readings = (Reading(question.text, question.answers),)
    if not readings:
        return None
    return passage_scores([piece.text for piece in outcome.evidence], readings)


async def _nli_citations(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    if not question.answerable:
        return None
    assert given.nli is not None
    return await nli_citation_measures(outcome, given.nli)


async def _judge_dual(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    if question.task not in (Task.SHORT, Task.JUDGED) or not question.answers:
        return None
    if not question.answerable:
        return None
    assert given.judge is not None
    judged = {
        text: await implies(given.judge, question.text, text, question.answers)
        for text in dict.fromkeys([raw(outcome), short(outcome)])
    }
    return apart(lambda text: {"judge_dual": judged[text]}, outcome)


async def _loong_official(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    if question.task is not Task.JUDGED:
        return None
    assert given.judge is not None
    return await loong_official(given.judge, question, raw(outcome))


async def _loong_spd(question: Question, outcome: Outcome, given: Backends) -> Measures | None:
    if question.task is not Task.JUDGED:
        return None
    assert given.judge is not None
    return await loong_spd(given.judge, question, raw(outcome))


def _citations(question: Question, outcome: Outcome) -> Measures | None:
    return citation_measures(question, outcome) if question.answerable else None


def _cost(question: Question, outcome: Outcome) -> Measures:
    return cost_measures(outcome)


_LITM = "Lost in the Middle, FlashRAG, ALCE"

_ALL = (
    Group(
        "short", "exact match, containment and F1 of words, SQuAD's normalisation", _LITM, _short
    ),
    Group(
        "dual", "the same after Unicode's NFD; raw, short and the better apart", "DualRAG", _dual
    ),
    Group(
        "dual_rouge",
        "ROUGE-2 and ROUGE-L by the rules of the package rouge; raw, short and the better apart",
        "DualRAG",
        _dual_rouge,
    ),
    Group(
        "flashrag", "F1 of words that holds yes and no apart", "FlashRAG, LongRefiner", _flashrag
    ),
    Group(
        "alce_asqa", "readings served (STR-EM), all served (HIT), words", "ALCE, RDR2", _alce_asqa
    ),
    Group(
        "alce_qa",
        "what a reader finds in the answer for each reading (Disambig-F1)",
        "ASQA, ALCE",
        asking=_alce_qa,
        needs="qa",
    ),
    Group("qampari", "a list separated by commas against a set with aliases", "ALCE", _qampari),
    Group("eli5", "claims that the answer entails", "ALCE", asking=_eli5, needs="nli"),
    Group(
        "long",
        "ROUGE-L and ROUGE-Lsum of rouge_score against whole answers",
        "ASQA, ALCE, RDR2",
        _long,
        needs="bench",
        modules=("rouge_score",),
    ),
    Group(
        "evidence",
        "gold documents found at each stage; the answer in the evidence",
        "DuQUAD, LongRefiner",
        evidence_measures,
    ),
    Group(
        "retrieval",
        "nDCG, MRR, recall, MAP and precision of what searches returned, by document",
        "trec_eval, DualRAG",
        _retrieval,
        needs="bench",
        modules=("pytrec_eval",),
    ),
    Group("passages", "readings served by the five best passages", "RDR2", _passages),
    Group(
        "citations", "cited documents against the gold; statements with a citation", "", _citations
    ),
    Group(
        "nli_citations",
        "whether cited passages entail what cites them",
        "ALCE",
        asking=_nli_citations,
        needs="nli",
    ),
    Group("abstention", "right refusals, wrong refusals, failures", "", abstention_measures),
    Group("cost", "calls, tokens, rounds, seconds, dollars, by role", "", _cost),
    Group(
        "judge_dual",
        "a judge says whether the prediction implies a gold",
        "DualRAG",
        asking=_judge_dual,
        needs="judge",
    ),
    Group(
        "loong_official",
        "a judge's score of 1 to 100, Loong's own protocol",
        "Loong",
        asking=_loong_official,
        needs="judge",
    ),
    Group(
        "loong_spd",
        "a judge's score of 0 to 100, SPD-RAG's protocol",
        "SPD-RAG",
        asking=_loong_spd,
        needs="judge",
    ),
)

GROUPS: Mapping[str, Group] = {group.name: group for group in _ALL}

CORPUS: Mapping[str, Callable[[Sequence[tuple[Question, Outcome]]], Measures]] = {
    "rouge": rouge_of_run,  # needs the extra bench
    "mauve": mauve_of_run,  # needs the extra local
}
