"""Curate samples for RDR2's router: the subtrees it is shown, and the actions of a teacher.

The strategy itself asks the teacher, so the subtrees are those of inference. A teacher replies with
tags and ids, or with `reply=enclosed`; the sample has tags and ids in any case.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict

from colligate.core.events import Listener
from colligate.core.parameters import set_parameters
from colligate.core.prompts import escape
from colligate.documents.tokens import estimate_tokens
from colligate.errors import UsageError
from colligate.lab.bench.question import Question
from colligate.lab.training.curation import CuratedMethod, Curation, CurationContext, open_curation
from colligate.lab.training.samples import Card, CuratedItem, Sample
from colligate.lab.training.scores import shown_subtree
from colligate.models import Message
from colligate.strategies.rdr2.method import RDR2, Routing
from colligate.strategies.rdr2.router import (
    REFUSAL,
    Action,
    Routed,
    Tag,
    parse_router_reply,
    router_messages,
)
from colligate.strategies.rdr2.tree import StructureTree, SubTree

_TASK = "router"


async def curate_rdr2(request: Curation, on_event: Listener) -> Card:
    """Curate samples for the router. `request.settings` are parameters of the strategy `rdr2`.

    As in the paper the teacher is asked about the subtrees of the search alone; "expansions=5"
    also takes those that its expansions lead to.
    """
    strategy = _configure(request)
    method = CuratedMethod(RDR2.name, (_TASK,), RDR2.needs, (RDR2,), asdict(strategy))
    async with open_curation(request, on_event, method) as context:

        async def work(question: Question) -> CuratedItem:
            return await _curate_question(question, strategy, context)

        return await context.curate({each.id: each for each in context.questions}, work)


def _configure(request: Curation) -> RDR2:
    request.choose_tasks(RDR2.name, (_TASK,))
    request.require_questions("a router chooses for a question")
    strategy = set_parameters(RDR2, ("expansions=0", *request.settings))
    if strategy.no_router:
        raise UsageError("cannot curate with no_router", "then no router is asked")
    return strategy


async def _curate_question(
    question: Question, strategy: RDR2, context: CurationContext
) -> CuratedItem:
    async with context.sources(question) as sources:
        run = context.start_run(sources)
        hits = await run.search(question.text, k=strategy.k, pool=strategy.pool, mode=strategy.mode)
        routings = await strategy.route(question.text, run, hits)
    events = [event for _, event in run.trace.events if isinstance(event, Routed)]
    drawn = draw_router_samples(question, routings, events, strategy.reply_tokens)
    if not hits:
        drawn.discarded["no passage was found"] += 1
    drawn.usage = context.usage_of(run)
    return drawn


def draw_router_samples(
    question: Question, routings: Sequence[Routing], events: Sequence[Routed], reply_tokens: int
) -> CuratedItem:
    """Return the samples of a question, in the order in which its documents were found."""
    trees = {routing.tree.document.id: routing.tree for routing in routings}
    order = list(trees)
    drawn, asked = CuratedItem(), set[tuple[Message, ...]]()
    ranked = sorted(
        events, key=lambda event: (order.index(event.document), event.round, event.highlighted)
    )
    for number, event in enumerate(ranked):
        nodes = trees[event.document].nodes
        headings = [node for node in nodes if nodes[node].structure]
        try:
            view = _parse_shown(event, trees[event.document], headings)
            wanted = format_reply(event.actions, view, refused=event.verdict == "refused")
        except ValueError:
            drawn.discarded["the subtree cannot be read back"] += 1
            continue
        if why := _find_fault(event, wanted, view, reply_tokens):
            drawn.discarded[why] += 1
            continue
        prompt = tuple(router_messages(question.text, event.shown))
        if prompt in asked:
            drawn.discarded["the same subtree came before"] += 1
            continue
        tags = {action.tag for action in event.actions}
        kind = next((tag.value for tag in (Tag.ANSWER, Tag.EXPAND) if tag in tags), "refuse")
        asked.add(prompt)
        sample = Sample(
            id=f"{question.id}/{number}",
            task=_TASK,
            messages=(*prompt, Message("assistant", wanted)),
            meta={
                "question": question.id,
                "document": event.document,
                "round": event.round,
                "class": kind,
                "shown": event.shown,
                "headings": [node for node in headings if node in view.visible],
            },
        )
        drawn.samples.append(sample)
    return drawn


def _parse_shown(event: Routed, tree: StructureTree, headings: Collection[int]) -> SubTree:
    """Return the subtree of an event; ValueError if its text is ambiguous."""
    view = shown_subtree(event.shown, headings)
    depths = {node: view.tree.nodes[node].depth for node in view.visible}
    if any(node not in tree.nodes or tree.nodes[node].depth != depths[node] for node in depths):
        raise ValueError("it shows a node that the tree does not have")
    return view


_WORDS = 5  # as the prompt asks
_LONGEST = 60  # characters of them: some languages write no spaces


def format_reply(actions: Collection[Action], view: SubTree, *, refused: bool = False) -> str:
    """Return the reply with these actions as the prompt asks: a line each, in document order."""
    if refused or not actions:
        return REFUSAL
    nodes = view.tree.nodes
    lines = []
    for action in sorted(actions, key=lambda action: action.node):
        words = " ".join(escape(nodes[action.node].text).split()[:_WORDS])
        lines.append(f"[{action.tag.value.upper()}] {action.node}: {words[:_LONGEST]}")
    return "\n".join(lines)


def _find_fault(event: Routed, wanted: str, view: SubTree, reply_tokens: int) -> str:
    """Return why a teacher's reply teaches nothing; empty if it does teach."""
    if event.cut:  # the rest would be taught as not to be chosen
        return "the teacher's reply was cut off"
    if event.verdict == "collapsed":
        return "nothing could be made of the reply"
    if event.verdict == "routed" and not event.actions:
        return "every action breaks a rule"
    if estimate_tokens(wanted) > reply_tokens:
        return "the reply would be longer than a reply may be"
    read = parse_router_reply(wanted, view)
    same = set(read.actions) == set(event.actions) and not (read.rejected or read.dropped)
    return "" if same and read.refused == (not event.actions) else "the reply does not read back"
