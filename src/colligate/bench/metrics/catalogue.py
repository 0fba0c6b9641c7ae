"""Every group of metrics by its name, and how the metrics of an outcome are taken."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Literal

from colligate.bench.metrics.backends import Backends, MissingBackend
from colligate.bench.metrics.by_question import (
    Measures,
    abstention_measures,
    alce_asqa,
    alce_qa,
    cost,
    dual,
    dual_rouge,
    eli5,
    flashrag,
    judge_dual,
    long,
    loong_official,
    loong_spd,
    nli_citations,
    passages,
    qampari,
    retrieval,
    short,
)
from colligate.bench.metrics.citations import citation_measures
from colligate.bench.metrics.evidence import evidence_measures
from colligate.bench.metrics.mauve import mauve_of_run
from colligate.bench.metrics.rouge import rouge_of_run
from colligate.bench.outcome import Outcome
from colligate.bench.question import Question
from colligate.errors import MissingExtra, UsageError

Need = Literal["", "judge", "nli", "qa", "bench"]
PerQuestion = Callable[[Question, Outcome], Measures | None]
Asking = Callable[[Question, Outcome, Backends], Awaitable[Measures | None]]


@dataclass(frozen=True)
class Group:
    """Metrics that are taken together.

    `per_question` computes them, or `asking` asks a model for them; either gives None where they
    say nothing of such a question. `needs` is the model that is asked, or "bench" for packages of
    that extra, `modules`. Only what is taken `always` is taken of a question without an answer.
    """

    name: str
    what: str
    source: str
    per_question: PerQuestion | None = None
    asking: Asking | None = None
    needs: Need = ""
    modules: tuple[str, ...] = ()
    always: bool = False


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
                f"give one with --{group.needs}",
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
        if not (question.answerable or group.always):
            continue
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


def higher_is_better(metric: str) -> bool | None:
    """Whether more of a metric is better; less is of costs, wrong refusals and failures.

    None where neither is: an answer of more words is not better for it, nor one of fewer.
    """
    return None if metric in _NEITHER else not metric.startswith(_LOWER)


_NEITHER = ("length",)
_LOWER = (
    *("calls", "tokens", "input_tokens", "output_tokens", "scoring_passes", "rounds", "seconds"),
    *("usd", "p_len", "evidence_words", "wrong_refusal", "failed"),
)


def _group(name: str) -> Group:
    if name not in GROUPS:
        raise UsageError(f"there are no metrics {name}", "", f"they are {', '.join(GROUPS)}")
    return GROUPS[name]


_LITM = "Lost in the Middle, FlashRAG, ALCE"

_ALL = (
    Group(
        "short",
        "exact match, containment and F1 of words, SQuAD's normalisation",
        _LITM,
        short,
    ),
    Group(
        "dual",
        "the same after Unicode's NFD; raw, short and the better apart",
        "DualRAG",
        dual,
    ),
    Group(
        "dual_rouge",
        "ROUGE-2 and ROUGE-L by the rules of the package rouge; raw, short and the better apart",
        "DualRAG",
        dual_rouge,
    ),
    Group(
        "flashrag",
        "F1 of words that holds yes and no apart",
        "FlashRAG, LongRefiner",
        flashrag,
    ),
    Group(
        "alce_asqa",
        "readings served (STR-EM), all served (HIT), words",
        "ALCE, RDR2",
        alce_asqa,
    ),
    Group(
        "alce_qa",
        "what a reader finds in the answer for each reading (Disambig-F1)",
        "ASQA, ALCE",
        asking=alce_qa,
        needs="qa",
    ),
    Group(
        "qampari",
        "a list separated by commas against a set with aliases",
        "ALCE",
        qampari,
    ),
    Group("eli5", "claims that the answer entails", "ALCE", asking=eli5, needs="nli"),
    Group(
        "long",
        "ROUGE-L and ROUGE-Lsum of rouge_score against whole answers",
        "ASQA, ALCE, RDR2",
        long,
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
        retrieval,
        needs="bench",
        modules=("pytrec_eval",),
    ),
    Group("passages", "readings served by the five best passages", "RDR2", passages),
    Group(
        "citations",
        "cited documents against the gold; statements with a citation",
        "",
        citation_measures,
    ),
    Group(
        "nli_citations",
        "whether cited passages entail what cites them",
        "ALCE",
        asking=nli_citations,
        needs="nli",
    ),
    Group(
        "abstention",
        "right refusals, wrong refusals, failures",
        "",
        abstention_measures,
        always=True,
    ),
    Group(
        "cost",
        "calls, tokens, rounds, seconds, dollars, by role",
        "",
        cost,
        always=True,
    ),
    Group(
        "judge_dual",
        "a judge says whether the prediction implies a gold",
        "DualRAG",
        asking=judge_dual,
        needs="judge",
    ),
    Group(
        "loong_official",
        "a judge's score of 1 to 100, Loong's own protocol",
        "Loong",
        asking=loong_official,
        needs="judge",
    ),
    Group(
        "loong_spd",
        "a judge's score of 0 to 100, SPD-RAG's protocol",
        "SPD-RAG",
        asking=loong_spd,
        needs="judge",
    ),
)

GROUPS: Mapping[str, Group] = {group.name: group for group in _ALL}

CORPUS: Mapping[str, Callable[[Sequence[tuple[Question, Outcome]]], Measures]] = {
    "rouge": rouge_of_run,  # needs the extra bench
    "mauve": mauve_of_run,  # needs the extra local
}
