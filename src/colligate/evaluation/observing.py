"""From an answer and the events of its run to what metrics look at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from colligate.documents import Span
from colligate.evaluation.outcome import Outcome, Piece
from colligate.evidence.router import Tag
from colligate.models.metering import UsageReport
from colligate.strategies.answer import Answer
from colligate.strategies.dualrag_trace import Gathered, Outlined
from colligate.strategies.duquad_trace import Gated, Listed, Viewed
from colligate.strategies.run import Run
from colligate.strategies.spd_rag_trace import AgentEnded, AgentTurn
from colligate.strategies.trace import Event, Retrieved, Routed, Selected, Structured


async def observed(
    run: Run, usage: UsageReport, answer: Answer | None = None, error: str = ""
) -> Outcome:
    """The outcome of a run: its answer, or why it broke and how far it had come."""
    events = [event for _, event in run.trace.events]
    found = answer is not None and answer.found
    cited = answer.citations if answer is not None and found else ()
    spans = [(citation.span, citation.answer_spans) for citation in cited]
    evidence = answer.evidence if answer is not None else ()
    warned = (*run.warnings, *(answer.warnings if answer is not None else ()))
    return Outcome(
        text=answer.text if answer is not None and found else "",
        short=(answer.short or "") if answer is not None and found else "",
        found=found,
        citations=tuple([await _piece(run, span, of_answer) for span, of_answer in spans]),
        evidence=tuple([await _piece(run, each.span) for each in evidence]),
        retrieved=tuple([await _piece(run, span) for span in retrieved(events)]),
        stages=stages(events),
        usage=usage.to_json(),
        seconds=usage.seconds,
        warnings=tuple(dict.fromkeys(warned)),
        error=error,
    )


def retrieved(events: Iterable[Event]) -> list[Span]:
    """What searches returned, each place once, in the order in which it was first found."""
    found = (event.spans for event in events if isinstance(event, Retrieved))
    return list(dict.fromkeys(span for spans in found for span in spans))


def stages(events: Sequence[Event]) -> Mapping[str, tuple[str, ...]]:
    """The documents left after each step of a strategy that leaves some out, by the step's name.

    DuQUAD: "global" and "local", what these agents read; "named" by either; "kept" by the gate.
    RDR2: "routed", accepted by the router. LongRefiner: "refined", and "selected" of these.
    DualRAG: "gathered" for its entities, "outlined" in the end. SPD-RAG: "read" by an agent, and
    "found": those with findings.
    """
    made: dict[str, list[str]] = {}
    numbered: dict[int, str] = {}

    def put(stage: str, documents: Iterable[str]) -> None:
        made.setdefault(stage, []).extend(documents)

    for event in events:
        match event:
            case Listed(spans=spans):
                numbered = {number: span.document_id for number, span in enumerate(spans, 1)}
            case Viewed(agent=agent, shown=shown, important=important):
                put(agent, (numbered[number] for number in shown))
                put("named", (numbered[number] for number in important))
            case Gated(scores=scores):
                put("kept", (numbered[each.number] for each in scores if each.kept))
            case Routed(document=document, actions=actions):
                accepted = any(action.tag is Tag.ANSWER for action in actions)
                put("routed", [document] if accepted else [])
            case Structured(document=document):
                put("refined", [document])
            case Selected(spans=spans):
                put("selected", _documents(spans))
            case Gathered(spans=spans):
                put("gathered", _documents(spans))
            case Outlined(entities=entities):
                fragments = (each for entity in entities for each in entity.fragments)
                # The outline as it stands after the last round counts.
                made["outlined"] = [id_ for each in fragments for id_ in _documents(each.spans)]
            case AgentTurn(document=document, shown=shown):
                put("read", [document] if shown else [])
            case AgentEnded(document=document, findings=findings):
                put("found", [document] if findings else [])
    return {stage: tuple(dict.fromkeys(documents)) for stage, documents in made.items()}


def _documents(spans: Iterable[Span]) -> list[str]:
    return [span.document_id for span in spans]


async def _piece(run: Run, span: Span, answer_spans: tuple[tuple[int, int], ...] = ()) -> Piece:
    document = await run.document(span.document_id)
    text = document.slice(span)
    return Piece(span.document_id, span.start, span.end, text, document.title, answer_spans)
