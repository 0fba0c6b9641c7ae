"""What a strategy does, said in one line for each kind of event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colligate.cli.display import counted
from colligate.core.events import Pruned, Retrieved, Scored
from colligate.core.reader import Shortened
from colligate.strategies.dualrag.events import Gathered, Identified, Outlined, Reasoned, Stopped
from colligate.strategies.duquad.events import Gated, Listed, Viewed
from colligate.strategies.longrefiner.events import Selected, Structured, Weighed
from colligate.strategies.rdr2.events import Routed
from colligate.strategies.spd_rag.events import AgentEnded, AgentTurn, Grouped, Planned, Synthesised

if TYPE_CHECKING:
    from colligate.core.events import Event


def step(event: Event) -> str | None:
    """The line for an event; None for those that have none."""
    match event:
        case Retrieved(spans=spans):
            return f"reading {counted(len(spans), 'passage')}"
        case Scored(signal=signal, spans=spans):
            return f"scored {counted(len(spans), 'passage')} by {signal}"
        case Pruned(spans=spans):
            return f"left out {counted(len(spans), 'passage')}"
        case Shortened(spans=spans):
            return f"shortened {counted(len(spans), 'passage')}"
        case Routed(document=document, verdict=verdict, actions=actions):
            done = counted(len(actions), "action") if actions else verdict
            return f"routing {document}: {done}"
        case Structured(document=document, nodes=nodes, basis=basis):
            return f"structured {document}: {counted(nodes, 'part')} from {basis}"
        case Weighed(document=document, nodes=scored):
            return f"weighed {counted(len(scored), 'part')} of {document}"
        case Selected(tokens=tokens, budget=budget, documents=documents):
            kept = f"kept {tokens:,} of {budget:,} tokens"
            return f"{kept} from {counted(documents, 'document')}"
    return _duquad(event) or _dualrag(event) or _spd_rag(event)


def _duquad(event: Event) -> str | None:
    match event:
        case Listed(units=units, spans=spans):
            return f"comparing {counted(len(spans), units.removesuffix('s'))}"
        case Viewed(agent=agent, shown=shown, important=important):
            read = f"the {agent} reader read {counted(len(shown), 'document')}"
            return f"{read}, {len(important)} of them important"
        case Gated(threshold=threshold, scores=scores):
            kept = sum(score.kept for score in scores)
            return f"{kept} of {counted(len(scores), 'document')} scored {threshold:g} or more"
    return None


def _dualrag(event: Event) -> str | None:
    match event:
        case Reasoned(round=round_, thought=thought):
            return f"round {round_}: {thought}"
        case Identified(round=round_, links=links):
            return f"round {round_}: looking up {', '.join(link.name for link in links)}"
        case Gathered(entity=entity, unseen=unseen):
            return f"reading {counted(len(unseen), 'passage')} about {entity}"
        case Outlined(entities=entities, new=new):
            kept = counted(sum(len(each.fragments) for each in entities), "fragment")
            return f"the outline has {kept}, {len(new)} new, of {_entities(len(entities))}"
        case Stopped(rounds=rounds, reason=reason):
            return f"looked up in {counted(rounds, 'round')}: {reason.value}"
    return None


def _spd_rag(event: Event) -> str | None:
    match event:
        case Planned(tasks=tasks, documents=documents):
            return f"{counted(len(tasks), 'task')} for each of {counted(documents, 'document')}"
        case AgentTurn(title=title, action="search", query=query):
            return f"searching {title}: {query}"
        case AgentTurn(title=title):
            return f"done with {title}"
        case AgentEnded(title=title, status=status, findings=findings):
            return f"{title}: {status}, {counted(len(findings), 'finding')}"
        case Grouped(level=level, groups=groups):
            texts = counted(sum(map(len, groups)), "text")
            return f"putting together, level {level}: {texts} in {counted(len(groups), 'group')}"
        case Synthesised(level=level, findings=findings):
            return f"put together, level {level}: {counted(len(findings), 'finding')}"
    return None


def _entities(count: int) -> str:
    return "1 entity" if count == 1 else f"{count:,} entities"
