"""Measure where a method fails: the gold documents and the replies, step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import TypeVar

from colligate.core.events import Event
from colligate.core.run import Run
from colligate.strategies.dualrag.events import Identified, Reasoned, Stopped, Summarised
from colligate.strategies.duquad.events import Gated, Listed, Viewed
from colligate.strategies.spd_rag.events import AgentEnded
from evidence_measuring import Row

T = TypeVar("T", bound=Event)


def list_events(run: Run, kind: type[T]) -> list[T]:
    """Return the run's events of a kind, in order."""
    return [event for _, event in run.trace.events if isinstance(event, kind)]


def measure_dualrag(run: Run) -> Row:
    """Return rounds, why they ended, and the summarizer's statements; empty without a loop."""
    ends, summaries = list_events(run, Stopped), list_events(run, Summarised)
    if not ends:
        return {}
    thoughts, sought = list_events(run, Reasoned), list_events(run, Identified)
    readable = [event.readable for kind in (thoughts, sought, summaries) for event in kind]
    return {
        "rounds": ends[-1].rounds,
        "stopped": ends[-1].reason.value,
        "statements made": sum(event.said for event in summaries),
        "statements kept": sum(len(event.fragments) for event in summaries),
        "unreadable replies": readable.count(False),
    }


def measure_duquad(run: Run, gold: Collection[str]) -> dict[str, float]:
    """Measure whether the gold was in the local view, named by an agent, kept by the scores."""
    listed, views, gates = (
        list_events(run, Listed),
        list_events(run, Viewed),
        list_events(run, Gated),
    )
    if not listed:
        return {}
    spans = listed[-1].spans
    numbers = {number for number, span in enumerate(spans, 1) if span.document_id in gold}
    found = {
        f"gold shown to the {view.agent} agent": bool(numbers & set(view.shown)) for view in views
    }
    found |= {
        f"gold named by the {view.agent} agent": bool(numbers & set(view.important))
        for view in views
    }
    found |= {f"{view.agent} agent named documents": view.named for view in views}
    if gates:
        kept = {score.number for score in gates[-1].scores if score.kept}
        found["gold kept by the scores"] = bool(numbers & kept)
    return {name: float(value) for name, value in found.items()}


def measure_spd_rag(run: Run) -> Row:
    """Return how the agents ended, what they did and found; empty without agents."""
    ends = list_events(run, AgentEnded)
    if not ends:
        return {}
    return {
        "agents": Counter(event.status for event in ends),
        "searches of an agent": _mean([event.searches for event in ends]),
        "turns of an agent": _mean([event.turns for event in ends]),
        "findings": sum(len(event.findings) for event in ends),
        "findings dropped": sum(event.dropped for event in ends),
        "agents without a finding": sum(not event.findings for event in ends),
    }


def _mean(values: Sequence[int]) -> float:
    return sum(values) / len(values)
