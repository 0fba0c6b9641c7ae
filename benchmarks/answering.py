"""Share code between benchmarks of whole strategies: an answer, its prompts, its cost.

A method is a registered strategy and its parameters, written
`NAME[:PARAMETER=VALUE[,PARAMETER=VALUE...]]`, for example `dualrag:no_rerank=true`.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from colligate.core.answer import Answer
from colligate.core.events import Asked, Retrieved
from colligate.core.parameters import set_parameters
from colligate.core.prompts import escape
from colligate.core.run import Run
from colligate.core.strategy import Strategy, load_strategy
from colligate.documents import Document, Span
from colligate.documents.reading.text import text_tree
from colligate.errors import ColligateError
from colligate.lab.bench.metrics.answers import normalise_squad
from colligate.library.sources import Sources
from colligate.models import ChatModel, Embedder, Message, Reranker, Role
from colligate.models.metering import Call, Meter
from evidence_data import Record
from evidence_measuring import Row

COSTS = (
    *("calls", "input_tokens", "output_tokens", "tokens", "scoring_passes", "scoring_tokens"),
    *("searches", "seconds"),
)


def parse_method(written: str) -> Strategy:
    """Return the strategy of a method with its parameters set."""
    name, _, parameters = written.partition(":")
    return set_parameters(load_strategy(name), [one for one in parameters.split(",") if one])


@dataclass
class Setting:
    """Hold the models that answer, the embedder and the reranker."""

    models: Mapping[Role, ChatModel]
    embedder: Embedder
    reranker: Reranker | None = None

    def make_run(self, sources: Sources) -> Run:
        """Return a new run; each question needs one."""
        return Run(sources, self.models, Meter(), reranker=self.reranker, embedder=self.embedder)


async def answer_question(strategy: Strategy, question: str, run: Run) -> tuple[Answer | None, Row]:
    """Return the answer and its row; if the strategy failed, no answer, and `error` is set."""
    began = time.perf_counter()
    answer, error = None, ""
    try:
        answer = await strategy.answer(question, run)
    except ColligateError as trouble:
        error = f"{type(trouble).__name__}: {trouble}"
    row: Row = {
        **count_costs(run.meter),
        "seconds": round(time.perf_counter() - began, 3),
        "found": bool(answer and answer.found),
        "text": answer.text if answer else "",
        "short": (answer.short or "") if answer else "",
        "warnings": list(run.warnings),
        "error": error,
    }
    return answer, row


def count_costs(meter: Meter) -> Row:
    """Count calls and tokens of chat, as the papers do, and those of scoring separately."""
    chats = [call for call in meter.calls if call.kind == "chat"]
    scorings = [call for call in meter.calls if call.kind == "scoring"]
    roles = dict.fromkeys(call.role for call in chats)
    return {
        **count_tokens(chats),
        "by_role": {role: count_tokens([c for c in chats if c.role == role]) for role in roles},
        "scoring_passes": sum(call.passes for call in scorings),
        "scoring_tokens": sum(call.usage.input_tokens for call in scorings),
        "searches": meter.retrieval_rounds,
        "structured": dict(meter.stages),
    }


def count_tokens(calls: Sequence[Call]) -> Row:
    """Count the calls and the sums of their tokens."""
    inside = sum(call.usage.input_tokens for call in calls)
    outside = sum(call.usage.output_tokens for call in calls)
    return {
        "calls": len(calls),
        "input_tokens": inside,
        "output_tokens": outside,
        "tokens": inside + outside,
    }


def make_documents(entries: Sequence[Record]) -> dict[str, Document]:
    """Return a document for each paragraph."""
    return {
        e["id"]: Document(
            e["id"],
            e["title"],
            e["text"],
            text_tree(e["text"], e["id"], prose=False),
            language="en",
        )
        for e in entries
    }


# Passages that were retrieved and shown


def list_retrieved(run: Run) -> list[Span]:
    """Return every passage that a search of the run returned."""
    events = [event for _, event in run.trace.events if isinstance(event, Retrieved)]
    return list(dict.fromkeys(span for event in events for span in event.spans))


def select_shown_to_models(
    run: Run, documents: Mapping[str, Document], among: Collection[Span]
) -> list[Span]:
    """Return the spans whose text is in a prompt of the run, regardless of white space."""
    prompts = {message.content for message in _messages(run) if message.role != "assistant"}
    texts = [_join_blanks(prompt) for prompt in prompts]
    found = []
    for span in among:
        sought = _join_blanks(escape(documents[span.document_id].slice(span)))
        if sought and any(sought in text for text in texts):
            found.append(span)
    return found


def _messages(run: Run) -> list[Message]:
    return [m for _, event in run.trace.events if isinstance(event, Asked) for m in event.messages]


def _join_blanks(text: str) -> str:
    return " ".join(text.split())


def compute_document_share(wanted: Collection[str], spans: Sequence[Span]) -> float:
    """Return the share of the wanted documents that contain at least one of the spans."""
    there = {span.document_id for span in spans}
    return len(there & set(wanted)) / len(set(wanted))


def count_by_step(run: Run, steps: Mapping[str, str]) -> Row:
    """Count calls and output tokens by step; `steps` gives the start of its system message."""
    calls: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for _, event in run.trace.events:
        if isinstance(event, Asked):
            begins = event.messages[0].content
            step = next((name for name, start in steps.items() if begins.startswith(start)), "else")
            calls[step] += 1
            written[step] += event.usage.output_tokens
    return {step: {"calls": calls[step], "output_tokens": written[step]} for step in calls}


# Measures of answers


def contains(answers: Sequence[str], text: str) -> float:
    """Return 1 if the text contains an answer in whole words, both normalised as in SQuAD."""
    plain = f" {normalise_squad(_remove_marks(text))} "
    return float(any(f" {wanted} " in plain for wanted in map(normalise_squad, answers) if wanted))


def matches_exactly(answers: Sequence[str], text: str) -> float:
    """Return 1 if the text equals one of the answers, both normalised."""
    return float(any(normalise_squad(text) == normalise_squad(answer) for answer in answers))


def compute_f1(answers: Sequence[str], text: str) -> float:
    """Return SQuAD's F1 of words against the most similar answer."""
    return max(
        (_compute_f1(split_words(answer), split_words(text)) for answer in answers), default=0.0
    )


def split_words(text: str) -> list[str]:
    """Return the words that SQuAD's normalisation leaves."""
    return normalise_squad(text).split()


def _compute_f1(wanted: Sequence[str], said: Sequence[str]) -> float:
    both = (Counter(wanted) & Counter(said)).total()
    return 2 * both / (len(wanted) + len(said)) if both else 0.0


def _remove_marks(text: str) -> str:
    """Remove the marks of citations."""
    return re.sub(r"\[(?:\d{1,3}|uncited)\]", " ", text)
