"""About how many model calls and tokens a run will take, said before anything is asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from colligate.evaluation.planning import Asked, Contender, Plan
from colligate.evaluation.question import Question
from colligate.evaluation.rows import Key, Row
from colligate.token_estimate import estimate_tokens

MANY = 300
"""So many calls are said before they are made."""

# Chat calls a question, as the papers print them or as their algorithms go; of N documents where
# it depends on them. What a run has done so far counts in their place.
_CALLS = {
    **dict.fromkeys(
        (
            *("direct", "full-context", "retrieve-read", "oracle", "two-hop", "fim", "recomp"),
            *("reorder-bm25", "reorder-dense", "longllmlingua", "llmlingua2"),
            *("selective-context", "meta-chunking", "semantic-chunking"),
        ),
        1.0,
    ),
    **{"duquad": 4.1, "dualrag": 15.0, "rdr2": 10.0, "longrefiner": 6.0},
    **{"ircot": 6.0, "metarag": 8.0, "genground": 16.0, "flare": 8.0, "toa": 26.5},
    **{"agentic-rag": 6.0, "self-rag": 11.0, "asc": 51.0},
}
_CALLS_A_DOCUMENT = {"spd-rag": 3.0, "main-rag": 1.0}
_UNKNOWN = 10.0

_PASSAGES = 10  # that a prompt shows of a corpus
_PASSAGE_TOKENS = 200
_INSTRUCTION_TOKENS = 600  # of a prompt, and what is replied
_MOST_TOKENS = 16_000  # a prompt rarely has more: what does not fit is searched
_BYTES_A_TOKEN = 4
_WHOLE = "full-context"  # but of this, which reads all there is in one prompt


@dataclass(frozen=True)
class Estimate:
    """Answers still to be given, and about what their calls will take together.

    `measured` are strategies whose figures are those of rows there are; of the others they are
    rough.
    """

    answers: int
    calls: float
    tokens: float
    measured: Collection[str] = ()

    def to_json(self) -> dict[str, Any]:
        """The estimate for programs."""
        return {
            "answers": self.answers,
            "calls": _round(self.calls),
            "tokens": _round(self.tokens),
            "measured": sorted(self.measured),
        }

    def __str__(self) -> str:
        return (
            f"{self.answers:,} answers to come: about {_round(self.calls):,} model calls and "
            f"{_round(self.tokens):,} tokens"
        )


def estimated(plan: Plan, rows: Mapping[Key, Row]) -> Estimate:
    """What the answers without a row will take: as those with one did, else by rule of thumb."""
    answers, calls, tokens = 0, 0.0, 0.0
    measured = set()
    for asked in plan.datasets:
        for contender in plan.contenders:
            key = (asked.dataset.name, contender.method.name)
            missing = [q for q in asked.questions if Key(key[0], q.id, key[1]) not in rows]
            done = [row for row in rows.values() if (row.dataset, row.strategy) == key]
            answers += len(missing)
            if done:
                measured.add(contender.method.name)
                calls += len(missing) * _mean(map(_calls_used, done))
                tokens += len(missing) * _mean(map(_tokens_of, done))
            else:
                for question in missing:
                    each = _calls_of(contender, asked, question)
                    calls += each
                    tokens += each * _prompt_tokens(contender, asked, question)
    return Estimate(answers, calls, tokens, measured)


def _calls_of(contender: Contender, asked: Asked, question: Question) -> float:
    name = contender.strategy.name
    if name in _CALLS_A_DOCUMENT:
        documents = len(question.documents) if asked.dataset.over != "corpus" else 20
        return 2 + _CALLS_A_DOCUMENT[name] * documents
    return _CALLS.get(name, _UNKNOWN)


def _prompt_tokens(contender: Contender, asked: Asked, question: Question) -> float:
    shown: float = _PASSAGES * _PASSAGE_TOKENS
    whole = contender.strategy.name == _WHOLE
    if not contender.strategy.needs.reads:
        shown = 0
    elif asked.dataset.over == "candidates":
        shown = sum(estimate_tokens(document.text) for document in question.documents)
        if contender.strategy.needs.searches:
            shown = min(shown, _PASSAGES * _PASSAGE_TOKENS)
    elif whole and (asked.dataset.over == "corpus" or not question.documents):
        shown = asked.corpus_bytes / _BYTES_A_TOKEN
    elif not contender.strategy.needs.searches:
        shown = _MOST_TOKENS
    return (shown if whole else min(shown, _MOST_TOKENS)) + _INSTRUCTION_TOKENS


def _tokens_of(row: Row) -> float:
    usage = row.outcome.usage
    return float(usage.get("input_tokens", 0)) + float(usage.get("output_tokens", 0))


def _calls_used(row: Row) -> float:
    return float(row.outcome.usage.get("calls", 0))


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)


def _round(number: float) -> int:
    """To two digits: it is an estimate."""
    return int(float(f"{number:.1e}"))
