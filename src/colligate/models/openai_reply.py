"""One answer of OpenAI's chat protocol, whole or streamed, as servers really send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from colligate.models.failures import Garbled
from colligate.models.protocols import Message, Usage
from colligate.models.thinking import ThinkingFilter
from colligate.token_estimate import estimate_tokens


@dataclass
class Reply:
    """What the server sent; `usage` as it said it."""

    content: str | None = None
    thinking: str = ""
    finish_reason: str | None = None
    usage: Any = None


async def ask(client: AsyncOpenAI, body: dict[str, Any]) -> Reply:
    """Send a request and read the whole answer.

    Raises:
        Garbled: it is no answer.
    """
    completion: Any = await client.chat.completions.create(**body)
    try:
        choice = completion.choices[0]
        message = choice.message
        reply = Reply(message.content, _thinking(message), choice.finish_reason, completion.usage)
        refusal = getattr(message, "refusal", None)
    except (AttributeError, LookupError, TypeError):
        raise Garbled("it has no choices") from None
    if reply.content is None:
        reply.content = refusal
    return _usable(reply)


async def ask_streaming(
    client: AsyncOpenAI, body: dict[str, Any], show: Callable[[str], object] | None
) -> Reply:
    """The same, streamed; `show` is given all the visible text so far, each time there is more.

    Raises:
        Garbled: it is no answer, or it breaks off.
    """
    reply = Reply()
    visible, filtered = "", ThinkingFilter()
    async with await client.chat.completions.create(**body, stream=True) as stream:
        async for chunk in stream:
            reply.usage = getattr(chunk, "usage", None) or reply.usage
            try:
                if not chunk.choices:
                    continue
                choice = chunk.choices[0]
                reply.finish_reason = choice.finish_reason or reply.finish_reason
                piece = choice.delta.content or getattr(choice.delta, "refusal", None)
                reply.thinking += _thinking(choice.delta)
            except (AttributeError, LookupError, TypeError):
                raise Garbled("it has no choices") from None
            if piece is not None:
                if not isinstance(piece, str):
                    raise Garbled("its content is not a text")
                reply.content = (reply.content or "") + piece
                visible += filtered.feed(piece)
                if show is not None:
                    show(visible)
    if reply.finish_reason is None:
        raise Garbled("the stream broke off before its end")
    return _usable(reply)


def _usable(reply: Reply) -> Reply:
    if reply.content is not None and not isinstance(reply.content, str):
        raise Garbled("its content is not a text")
    if not isinstance(reply.finish_reason, str | None):
        raise Garbled("its finish_reason is not a text")
    if reply.content is None and not reply.thinking and reply.finish_reason in (None, "stop"):
        raise Garbled("its content is null")
    return reply


def _thinking(message: Any) -> str:
    # DeepSeek and llama-server write reasoning_content, newer vLLM and Ollama reasoning.
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := getattr(message, name, None), str):
            return text
    return ""


def estimate_prompt(messages: Sequence[Message]) -> int:
    """About how many tokens messages have in a chat template.

    Four mark a message (begin, role, line break, end), three more call for the answer: as in
    OpenAI's models and in ChatML. Templates that add a system prompt of their own cost more.
    """
    return sum(estimate_tokens(message.content) + 4 for message in messages) + 3


def usage_of(reply: Reply, messages: Sequence[Message]) -> Usage:
    """What the answer to the messages cost; an estimate where the server does not say."""
    said = reply.usage
    if isinstance(getattr(said, "prompt_tokens", None), int):
        details = getattr(said, "prompt_tokens_details", None)
        return Usage(
            input_tokens=_count(said, "prompt_tokens"),
            output_tokens=_count(said, "completion_tokens"),
            cached_tokens=_count(details, "cached_tokens"),
        )
    return Usage(
        input_tokens=estimate_prompt(messages),
        output_tokens=estimate_tokens(reply.thinking + (reply.content or "")),
        estimated=True,
    )


def _count(said: object, name: str) -> int:
    value = getattr(said, name, None)
    return value if isinstance(value, int) and value > 0 else 0
