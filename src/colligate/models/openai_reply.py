"""One answer of OpenAI's chat protocol, whole or streamed, as servers really send them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI, AsyncStream

from colligate.models.failures import Garbled
from colligate.models.protocols import Message, Usage
from colligate.models.thinking import ThinkingFilter
from colligate.token_estimate import estimate_tokens


@dataclass
class Reply:
    """What the server sent; `usage` is its JSON, if any."""

    content: str | None = None
    thinking: str = ""
    finish_reason: str | None = None
    usage: Any = None


# Answers are read as plain JSON: building the client's objects costs a quarter of a call's
# processor time, and of each piece of a stream.


async def post_chat(client: AsyncOpenAI, body: dict[str, Any]) -> Any:
    """Send a request; the answer is whatever JSON came, or a text."""
    return await client.post("/chat/completions", body=body, cast_to=object)


async def ask(client: AsyncOpenAI, body: dict[str, Any]) -> Reply:
    """Send a request and read the whole answer.

    Raises:
        Garbled: it is no answer.
    """
    completion = await post_chat(client, body)
    try:
        choice = completion["choices"][0]
        message, finish_reason = choice["message"], choice.get("finish_reason")
        content = message.get("content")
        if content is None:
            content = message.get("refusal")
        reply = Reply(content, _thinking(message), finish_reason, completion.get("usage"))
    except (AttributeError, LookupError, TypeError):
        raise Garbled("it has no choices") from None
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
    opened = await client.post(
        "/chat/completions",
        body=body | {"stream": True},
        cast_to=object,
        stream=True,
        stream_cls=AsyncStream[Any],
    )
    async with opened as stream:
        async for chunk in stream:
            try:
                reply.usage = chunk.get("usage") or reply.usage
                if not chunk.get("choices"):
                    continue
                choice = chunk["choices"][0]
                reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
                delta = choice.get("delta") or {}
                piece = delta.get("content") or delta.get("refusal")
                reply.thinking += _thinking(delta)
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
        if isinstance(text := message.get(name), str):
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
    if count(reply.usage, "prompt_tokens"):
        return Usage(
            input_tokens=count(reply.usage, "prompt_tokens"),
            output_tokens=count(reply.usage, "completion_tokens"),
            cached_tokens=count(reply.usage, "prompt_tokens_details", "cached_tokens"),
        )
    return Usage(
        input_tokens=estimate_prompt(messages),
        output_tokens=estimate_tokens(reply.thinking + (reply.content or "")),
        estimated=True,
    )


def count(said: Any, *names: str) -> int:
    """A number that a server says somewhere in its usage; 0 where it says none."""
    for name in names:
        said = said.get(name) if isinstance(said, dict) else None
    return said if isinstance(said, int) and said > 0 else 0
