"""Whether the gold documents, and the answer itself, were found and kept."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from colligate.bench.metrics.short_answers import containment
from colligate.bench.outcome import Outcome, Piece
from colligate.bench.question import Question, Task

_IN_WORDS = (Task.SHORT, Task.READINGS, Task.SET)


def gold_recall(gold: Collection[str], found: Iterable[str]) -> dict[str, float]:
    """How much of the gold was found: `any` of it, `all`, and its `share`. None without gold."""
    wanted = set(gold)
    share = len(wanted & set(found)) / len(wanted)
    return {"any": float(share > 0), "all": float(share == 1), "share": share}


def short_answers_of(question: Question) -> tuple[str, ...]:
    """Answers that may stand in a text word for word; whole paragraphs never do."""
    return question.answers if question.task in _IN_WORDS else ()


def evidence_measures(question: Question, outcome: Outcome) -> dict[str, float]:
    """Gold recall of what was retrieved, of each stage and of the evidence; the answer in it.

    `gold_any_STAGE`, `gold_all_STAGE` and `gold_share_STAGE` for the stages `retrieved`,
    `evidence` and those that the strategy names; `retrieved` only where there was a search. The
    answer is sought in the titles and texts of the evidence together, as a reader is shown them.
    `evidence_words` are unknown of what broke. `compression` is how many times fewer words the
    evidence has than the question's documents.
    """
    measures: dict[str, float] = {}
    if question.gold:
        for stage, documents in _stages(outcome).items():
            recall = gold_recall(question.gold, documents)
            measures.update({f"gold_{how}_{stage}": value for how, value in recall.items()})
    if answers := short_answers_of(question):
        shown = "\n".join(f"{piece.title}\n{piece.text}" for piece in outcome.evidence)
        measures["answer_in_evidence"] = containment(shown, answers)
    if outcome.error:
        return measures
    words = _words(piece.text for piece in outcome.evidence)
    measures["evidence_words"] = float(words)
    if words and all(document.text for document in question.documents) and question.documents:
        measures["compression"] = _words(each.text for each in question.documents) / words
    return measures


def documents_of(pieces: Iterable[Piece]) -> list[str]:
    """The documents of pieces, each once, in the order of their first piece."""
    return list(dict.fromkeys(piece.document for piece in pieces))


def searched(outcome: Outcome) -> bool:
    """Whether it searched; what broke before it could is counted as a search without results."""
    rounds = outcome.usage.get("retrieval_rounds", 0)
    return bool(outcome.retrieved or rounds or outcome.error)


def _stages(outcome: Outcome) -> dict[str, Collection[str]]:
    stages: dict[str, Collection[str]] = {}
    if searched(outcome):
        stages["retrieved"] = documents_of(outcome.retrieved)
    return {**stages, **outcome.stages, "evidence": documents_of(outcome.evidence)}


def _words(texts: Iterable[str]) -> int:
    return sum(len(text.split()) for text in texts)
