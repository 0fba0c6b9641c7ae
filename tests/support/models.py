"""Short ways to ask a model, and replies of a scripted reader."""

import json
from collections.abc import Sequence
from typing import Any

from colligate.models import ChatModel, ChatRequest, Completion, LikelihoodModel, Message, OnToken

HELLO = [Message("user", "Hello?")]


async def ask(
    model: ChatModel,
    messages: Sequence[Message] = HELLO,
    *,
    on_token: OnToken | None = None,
    max_tokens: int = 9,
    **options: Any,
) -> Completion:
    return await model.chat(ChatRequest(messages, max_tokens=max_tokens, **options), on_token)


async def likelihood(model: LikelihoodModel, prefix: str, continuation: str) -> list[float]:
    [scores] = await model.likelihoods([(prefix, continuation)])
    return scores


def statement_reply(quote: str, sentence: str, short: str) -> str:
    """What a reader replies that states one thing, quoted from the first passage."""
    said = {"passage": 1, "quote": quote, "sentence": sentence}
    return json.dumps({"statements": [said], "short_answer": short, "found": True})


NOT_FOUND = json.dumps({"statements": [], "short_answer": "", "found": False})


def one_by_one(call: ChatRequest) -> str:
    """Reply as a reader for whom each question asks one fact of each document, and none has it."""
    fields = (call.schema or {}).get("properties", {})
    return '{"kind": "each"}' if "kind" in fields else NOT_FOUND
