"""How much a question asks for, by a model: R_q of LongRefiner."""

from __future__ import annotations

from colligate.errors import MissingCapability
from colligate.evidence.query_scope import (
    FORCED,
    LABELS,
    scope_messages,
    scope_of_odds,
    scope_of_reply,
)
from colligate.models import Capability, Role
from colligate.strategies.run import Run
from colligate.strategies.trace import Noted

LABEL_TOKENS = 8


async def query_scope(question: str, run: Run) -> float:
    """R_q in [0, 1]: the odds of the two labels.

    A scorer that gives none is asked for the label; where it names neither the two weigh the same.
    The trace says so.
    """
    scorer = run.model(Role.SCORER)
    if Capability.LABELS in scorer.capabilities:
        try:
            odds = await run.labels(scope_messages(question), LABELS, forced=FORCED)
        except MissingCapability:
            # A server that gives odds of the first token alone: it must be the label's own.
            odds = await run.labels(scope_messages(question, bare=True), LABELS)
        return scope_of_odds(odds.odds)
    messages = scope_messages(question)
    reply = await run.chat(messages, role=Role.SCORER, max_tokens=LABEL_TOKENS)
    scope = scope_of_reply(reply.text)
    if scope is None:
        run.emit(Noted(f"{scorer.name} does not say how much the question asks for: R_q is 0.5"))
        return 0.5
    run.emit(Noted(f"{scorer.name} gives no label odds: R_q is {scope:g} by the label it names"))
    return scope
