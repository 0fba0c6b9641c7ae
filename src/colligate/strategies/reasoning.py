"""The Reasoner of DualRAG at work: one more thought on what is known."""

from __future__ import annotations

from functools import partial

from colligate.errors import MalformedOutput
from colligate.evidence.reasoner import (
    REASONER_TOKENS,
    SENTENCE_TOKENS,
    FactsFirst,
    Reasoning,
    reasoner_messages,
    reasoner_reply,
    sentence_messages,
    sentence_reasoning,
)
from colligate.strategies.dualrag_trace import Reasoned
from colligate.strategies.knowledge import Knowledge
from colligate.strategies.run import Run

_LONGEST = 1000  # characters of a thought


async def next_thought(knowledge: Knowledge, run: Run, *, sentences: bool = False) -> Reasoning:
    """The next thought, and whether something is missing; `sentences` as without a Reasoner."""
    facts: list[str] = []
    readable = True
    if sentences:
        ask = partial(sentence_messages, knowledge.question, thoughts=knowledge.thoughts)
        outline = await knowledge.shown(run, ask, SENTENCE_TOKENS)
        reply = await run.chat(ask(outline), max_tokens=SENTENCE_TOKENS)
        reasoning = sentence_reasoning(reply.text)
    else:
        ask = partial(reasoner_messages, knowledge.question, thoughts=knowledge.thoughts)
        outline = await knowledge.shown(run, ask, REASONER_TOKENS, FactsFirst)
        schema = reasoner_reply(outline)
        try:
            made = (await run.structured(ask(outline), schema, max_tokens=REASONER_TOKENS)).value
            reasoning = Reasoning(thought=made.thought, need_retrieve=made.need_retrieve)
            facts = made.facts if isinstance(made, FactsFirst) else []
        except MalformedOutput as error:
            # What it wrote is a thought all the same; that it suffices was not said.
            readable = False
            reasoning = Reasoning(thought=error.reply, need_retrieve=True)
    thought = " ".join(reasoning.thought.split())[:_LONGEST]
    need = reasoning.need_retrieve
    run.emit(Reasoned(knowledge.rounds + 1, thought, need, tuple(facts), readable))
    return Reasoning(thought=thought, need_retrieve=need)
