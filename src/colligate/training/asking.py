"""How inference asks for what a sample trains: the form the reply is held to, and its length."""

from __future__ import annotations

import contextlib

from pydantic import BaseModel

from colligate.errors import MissingCapability
from colligate.evidence.entity_identifier import IDENTIFIER_TOKENS, Entities
from colligate.evidence.knowledge_outline import NOTHING
from colligate.evidence.knowledge_summarizer import SUMMARY_TOKENS, Summary
from colligate.evidence.query_scope import FORCED, LABELS
from colligate.evidence.reasoner import (
    REASONER_TOKENS,
    FactsFirst,
    Reasoning,
    reasoner_messages,
)
from colligate.models import Capability, Completion, Role
from colligate.models.schema_prompt import with_schema
from colligate.models.structured import json_schema_of
from colligate.strategies.query_scope import LABEL_TOKENS
from colligate.strategies.rdr2 import RDR2
from colligate.strategies.refiner import TITLES_TOKENS
from colligate.strategies.run import Run
from colligate.training.samples import Sample

_TOKENS = {
    "router": RDR2().reply_tokens,
    "scope": LABEL_TOKENS,
    "selection": TITLES_TOKENS,
    "reasoner": REASONER_TOKENS,
    "identifier": IDENTIFIER_TOKENS,
    "summarizer": SUMMARY_TOKENS,
}
_REASONER_BEGINS = reasoner_messages("", NOTHING, ())[0]


async def asked(sample: Sample, run: Run) -> Completion:
    """The reply of the run's reader to a sample's messages, greedy, as inference would ask.

    It is one call: what inference asks again when a reply cannot be read is not asked again. The
    scope is the likelier label where the model gives odds of labels. A skeleton may have as many
    tokens as its prompt: the whole text copied fits.

    Raises:
        ModelError: the call failed.
        BudgetExceeded: not enough is left for it.
    """
    model = run.model(Role.READER)
    if sample.task == "scope" and Capability.LABELS in model.capabilities:
        with contextlib.suppress(MissingCapability):  # a server that begins no reply by force
            odds = (await run.labels(sample.prompt, LABELS, forced=FORCED, role=Role.READER)).odds
            likelier = max(odds, key=lambda label: odds[label])
            return Completion(f"{FORCED}{likelier}]", model=model.name)
    messages, reply = list(sample.prompt), form(sample)
    schema = None if reply is None else json_schema_of(reply)
    if schema is not None and Capability.STRUCTURED not in model.capabilities:
        messages = with_schema(messages, schema)
    most = _TOKENS.get(sample.task)
    if most is None:
        prompt = await model.count_prompt(messages)
        room = model.context_tokens - prompt if model.context_tokens is not None else prompt
        most = max(1, min(prompt, room))
    return await run.chat(messages, max_tokens=most, schema=schema)


def form(sample: Sample) -> type[BaseModel] | None:
    """What the reply to a sample is held to at inference; None for a reply in words."""
    match sample.task:
        case "reasoner":
            begins = sample.prompt[0] == _REASONER_BEGINS
            return Reasoning if begins else FactsFirst
        case "identifier":
            return Entities
        case "summarizer":
            return Summary
    return None
