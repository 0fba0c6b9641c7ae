"""Metrics of every answer: its cost, refusals and failures, and whether it is right.

Containment in characters finds "art" in "party"; `verdict` compares whole words and figures, by the
rule of a careful reader.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from colligate.lab.bench.metrics.answers import take_short, take_whole
from colligate.lab.bench.metrics.groups import MetricGroup
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question, QuestionTask

_BY_ROLE = ("calls", "input_tokens", "output_tokens")
# By the events of a method.
_COUNTED = ("queries", "redundant_queries", "skeleton_tokens", "structured_tokens")


def cost_measures(_: Question, outcome: Outcome) -> dict[str, float]:
    """Return calls, tokens, scoring passes, searches, rounds, seconds and US dollars.

    `tokens` are of chat calls (`chat_tokens`) and of scoring (`scoring_tokens`) together.
    `offline_...` is the part that prepared documents for all questions (LongRefiner's structuring),
    `online_...` the rest. `rounds` are those that the strategy reports; where it reports none, each
    search is one. `rounds_dual` is at least 1, as DualRAG counts a question that searched not at
    all; `no_rounds` is 1 for it. `usd` is left out where a price is not known, seconds where
    models' replies came from a cache. Calls and tokens are also given by role, as `NAME_ROLE`, and
    by the steps of a method, as `NAME_by_STEP`; what its events count, under their names. An answer
    that failed costs what was spent until then.
    """
    usage = outcome.usage
    into, out = float(usage.get("input_tokens", 0)), float(usage.get("output_tokens", 0))
    scoring, searches = usage.get("scoring_tokens", 0), float(usage.get("retrieval_rounds", 0))
    rounds = searches if outcome.rounds is None else float(outcome.rounds)
    measures = {
        "calls": float(usage.get("calls", 0)),
        "input_tokens": into,
        "output_tokens": out,
        "tokens": into + out,
        "chat_tokens": into + out - scoring,
        "scoring_tokens": float(scoring),
        "scoring_passes": float(usage.get("scoring_passes", 0)),
        "searches": searches,
        "rounds": rounds,
        "rounds_dual": max(1.0, rounds),
        "no_rounds": float(not rounds),
    }
    if not usage.get("remembered"):
        measures["seconds"] = outcome.seconds
    if (usd := usage.get("cost_usd", 0.0)) is not None:
        measures["usd"] = float(usd)
    offline = {name: float(value or 0) for name, value in usage.get("offline", {}).items()}
    prepared = offline.get("input_tokens", 0.0)
    offline["tokens"] = prepared + offline.get("output_tokens", 0.0)
    offline["usd"] = offline.get("cost_usd", 0.0)
    for name in ("calls", "tokens", "seconds", "usd"):
        if name in measures:
            measures[f"offline_{name}"] = offline.get(name, 0.0)
            measures[f"online_{name}"] = measures[name] - offline.get(name, 0.0)
    measures["online_input_tokens"] = into - prepared
    measures |= {name: outcome.counts[name] for name in _COUNTED if name in outcome.counts}
    steps = {f"by_{step}": sums for step, sums in usage.get("by_step", {}).items()}
    for part, sums in {**usage.get("by_role", {}), **steps}.items():
        measures |= {f"{name}_{part}": float(sums.get(name, 0)) for name in _BY_ROLE}
    return measures


COST = MetricGroup(
    "cost",
    cost_measures,
    always=True,
    lower=(
        *(*_BY_ROLE, "tokens", "chat_tokens", "scoring_", "searches", "rounds", "seconds", "usd"),
        *("offline_", "online_", *_COUNTED),
    ),
    neutral=("no_rounds",),
)


def abstention_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """Return `failed`, and `right_refusal` or `wrong_refusal`.

    A refusal is right where the documents hold no answer. Of a question that brings neither an
    answer nor gold nobody knows which it is, and neither is returned.
    """
    measures = {"failed": float(bool(outcome.error))}
    refused = float(not outcome.found and not outcome.error)
    known = question.answers, question.gold, question.readings, question.members, question.claims
    if not question.answerable:
        measures["right_refusal"] = refused
    elif any(known) or question.long_answers:
        measures["wrong_refusal"] = refused
    return measures


ABSTENTION = MetricGroup(
    "abstention", abstention_measures, always=True, lower=("wrong_refusal", "failed")
)


# Right, refused, or wrong with a citation

# A hyphen is a sign only where no span or word has it: 2019-2020, 5%-10%, 12.-15., +/-5, COVID-19.
_SIGN = r"(?:(?<![^\W_])(?<![-.%°/€£)\]])-(?=\d))?"
_FIGURE = re.compile(rf"{_SIGN}\d+(?:\.\d+)?")
_WORD = re.compile(rf"{_SIGN}[^\W_]+(?:(?<=\d)(?:\.|,(?!\d{{4}}(?!\d)))(?=\d)[^\W_]+)*")
_HYPHENS = dict.fromkeys(map(ord, "\u2011\u2013\N{MINUS SIGN}"), "-")
_MINUS = re.compile(r"(?<![\d%] )(?<!\bor )\bminus (?=[$€£]?\d)", re.I)
# What stands in the way of a number: the sign of a currency, and what parts its thousands.
_THOUSANDS = r"(?<=\d)(?<!\d{4})[%s](?=(?:\d\d,)*\d{3}(?!\d))"
_WITHIN = re.compile(r"(?<=-)[a-z]{0,3}[$€£] ?(?=\d)|" + _THOUSANDS % ",\u00a0\u202f", re.I)
_BLANK = re.compile(_THOUSANDS % " ")
_SIGNS = re.compile(r"(?:us)?[$€£%]|usd|million|billion", re.I)


def verdict_measures(question: Question, outcome: Outcome) -> dict[str, float] | None:
    """Return `right`, `refused` and `wrong_cited`, each 0 or 1, and `answer_words`.

    Right is a short answer (or, without one, a whole answer) that holds the words of a gold in
    their order, or its figure where the gold is a single one. Yes and No must be its first word.
    What a whole answer has from the question does not count. A question that the documents do not
    answer is refused rightly, and `wrong_cited` if it is answered with a citation. `answer_words`
    are those of the text that is judged. None for sets, long answers and paragraphs, which words do
    not decide.
    """
    refused = not outcome.answered and not outcome.error
    short = take_short(outcome)
    judged = short or take_whole(outcome)
    if question.answerable:
        golds = [gold for gold in question.answers if list_words(gold)]
        if question.task is QuestionTask.JUDGED:
            golds = [gold for gold in golds if _read_figure(gold) is not None]
        elif question.task is not QuestionTask.SHORT:
            golds = []
        if not golds:
            return None
        asked = f" {' '.join(list_words(question.text))} "
        if not short:  # a whole answer may repeat what the question offers to choose from
            golds = [gold for gold in golds if f" {' '.join(list_words(gold))} " not in asked]
        right = is_right(judged, golds)
    else:
        right = refused
    wrong = outcome.answered and bool(outcome.citations) and not right
    return {
        "right": float(right),
        "refused": float(refused),
        "wrong_cited": float(wrong),
        "answer_words": float(len(judged.split())),
    }


VERDICT = MetricGroup("verdict", verdict_measures, always=True, lower=("wrong_cited", "refused"))


def is_right(answer: str, golds: Sequence[str]) -> bool:
    """Return whether an answer holds a gold; "2 150" is read as two numbers and as one."""
    return any(_holds(read(answer), read(gold)) for read in (str, _join) for gold in golds)


def _holds(answer: str, gold: str) -> bool:
    said, words, figure = list_words(answer), list_words(gold), _read_figure(gold)
    if words in (["yes"], ["no"]):
        return said[:1] == words
    if figure is not None:
        return figure in map(float, _FIGURE.findall(_prepare(answer)))
    return f" {' '.join(words)} " in f" {' '.join(said)} "


def list_words(text: str) -> list[str]:
    """Return the words and numbers in lower case, without articles.

    >>> list_words("Clause 4.2: the rent of 1,577, -5.2%.")
    ['clause', '4.2', 'rent', 'of', '1577', '-5.2']
    """
    return [word for word in _WORD.findall(_prepare(text.casefold())) if word not in _ARTICLES]


_ARTICLES = frozenset({"a", "an", "the"})


def _read_figure(gold: str) -> float | None:
    """Return the number that a gold is, "$1,577.00" or "5.4%"; None if it says more."""
    bare = _prepare(_join(_SIGNS.sub("", gold).strip()))
    return float(bare) if _FIGURE.fullmatch(bare) else None


def _prepare(text: str) -> str:
    """Write numbers as `float` reads them."""
    return _WITHIN.sub("", _MINUS.sub("-", text.translate(_HYPHENS)))


def _join(text: str) -> str:
    """Join the thousands that a blank parts."""
    return _BLANK.sub("", text)
