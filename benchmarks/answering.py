"""What the benchmarks of whole strategies share: one answer, what was read for it, what it cost.

A method is written `NAME[:PARAMETER=VALUE[,PARAMETER=VALUE...]]`, such as `dualrag:no_rerank=true`:
a registered strategy and its parameters.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from colligate.bench.metrics.answers import normalise_squad
from colligate.core.answer import Answer
from colligate.core.events import Asked, Retrieved
from colligate.core.parameters import set_parameters
from colligate.core.prompts import escape
from colligate.core.run import Run
from colligate.core.strategy import Strategy, load_strategy
from colligate.documents import Document, Span
from colligate.documents.reading.text import text_tree
from colligate.errors import ColligateError
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
    """The strategy of a method, set up."""
    name, _, parameters = written.partition(":")
    return set_parameters(load_strategy(name), [one for one in parameters.split(",") if one])


@dataclass
class Setting:
    """The models that answer, and what they search with."""

    models: Mapping[Role, ChatModel]
    embedder: Embedder
    reranker: Reranker | None = None

    def make_run(self, sources: Sources) -> Run:
        """A run of its own for each question."""
        return Run(sources, self.models, Meter(), reranker=self.reranker, embedder=self.embedder)


async def answer_question(strategy: Strategy, question: str, run: Run) -> tuple[Answer | None, Row]:
    """The answer and what is known of it; none where the strategy broke, which `error` says."""
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
    """Calls and tokens of the chat alone, as the papers count them; what scoring took, apart."""
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
    """What calls took together."""
    inside = sum(call.usage.input_tokens for call in calls)
    outside = sum(call.usage.output_tokens for call in calls)
    return {
        "calls": len(calls),
        "input_tokens": inside,
        "output_tokens": outside,
        "tokens": inside + outside,
    }


def make_documents(entries: Sequence[Record]) -> dict[str, Document]:
    """Paragraphs as documents of their own."""
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


# What was read


def list_retrieved(run: Run) -> list[Span]:
    """Every passage that some search of the run returned."""
    events = [event for _, event in run.trace.events if isinstance(event, Retrieved)]
    return list(dict.fromkeys(span for event in events for span in event.spans))


def select_shown_to_models(
    run: Run, documents: Mapping[str, Document], among: Collection[Span]
) -> list[Span]:
    """The spans whose text stands in a prompt of the run, blanks aside."""
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
    """How many of the documents wanted any of the spans stands in."""
    there = {span.document_id for span in spans}
    return len(there & set(wanted)) / len(set(wanted))


def count_by_step(run: Run, steps: Mapping[str, str]) -> Row:
    """Calls and output tokens by step; a step's system message begins as `steps` says."""
    calls: Counter[str] = Counter()
    written: Counter[str] = Counter()
    for _, event in run.trace.events:
        if isinstance(event, Asked):
            begins = event.messages[0].content
            step = next((name for name, start in steps.items() if begins.startswith(start)), "else")
            calls[step] += 1
            written[step] += event.usage.output_tokens
    return {step: {"calls": calls[step], "output_tokens": written[step]} for step in calls}


# What was answered


def contains(answers: Sequence[str], text: str) -> float:
    """One of the answers stands in a text, in whole words, after SQuAD's normalisation of both."""
    plain = f" {normalise_squad(_remove_marks(text))} "
    return float(any(f" {wanted} " in plain for wanted in map(normalise_squad, answers) if wanted))


def matches_exactly(answers: Sequence[str], text: str) -> float:
    """The text is one of the answers, both normalised."""
    return float(any(normalise_squad(text) == normalise_squad(answer) for answer in answers))


def compute_f1(answers: Sequence[str], text: str) -> float:
    """SQuAD's F1 of words, against the nearest answer."""
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
    """Without the marks of citations."""
    return re.sub(r"\[(?:\d+|uncited)\]", " ", text)
