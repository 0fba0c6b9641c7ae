"""Read what a server answers to a chat, whole or streamed, at either of its addresses.

/responses is the only address at which OpenAI serves some of its models:
https://platform.openai.com/docs/api-reference/responses

Answers are read as plain JSON: building the client's objects costs a quarter of a call's
processor time, and of each piece of a stream.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from openai import APIConnectionError, APIError, AsyncStream

from colligate.documents.tokens import estimate_tokens
from colligate.models.base import Message, Usage
from colligate.models.openai_http import Garbled
from colligate.models.thinking import ThinkingFilter


@dataclass
class ServerReply:
    """What the server sent; `usage` is its JSON, if any. `refused`: the model declined."""

    content: str | None = None
    thinking: str = ""
    finish_reason: str | None = None
    usage: Any = None
    refused: bool = False

    def add(self, part: Any, key: str) -> str:
        """Take a whole answer ("message") or a piece of a stream ("delta"); return its text."""
        try:
            self.usage = part.get("usage") or self.usage
            if key == "delta" and not part.get("choices"):
                return ""
            choice = part["choices"][0]
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
            said = choice[key] if key == "message" else choice.get(key) or {}
            piece = said.get("content")
            self.refused |= bool(said.get("refusal"))
            piece = piece or said.get("refusal") or piece
            self.thinking += _thinking(said)
        except (AttributeError, LookupError, TypeError):
            raise Garbled("it has no choices") from None
        if not isinstance(piece, str | None):
            raise Garbled("its content is not a text")
        if piece is not None:
            self.content = (self.content or "") + piece
        return piece or ""

    def check(self) -> ServerReply:
        """Return the reply, or raise Garbled if it cannot be used."""
        if not isinstance(self.finish_reason, str | None):
            raise Garbled("its finish_reason is not a text")
        if self.content is None and not self.thinking and self.finish_reason in (None, "stop"):
            raise Garbled("its content is null")
        return self

    def was_cut_thinking(self, thinking: str) -> bool:
        """Return whether the limit cut it, and tokens went into this or unseen thinking."""
        reported = _count(self.usage, "completion_tokens_details", "reasoning_tokens")
        unseen = reported or self._output_tokens > _count(self.usage, "completion_tokens")
        return self.finish_reason == "length" and bool(thinking or unseen)

    @property
    def _output_tokens(self) -> int:
        """Return the tokens written; Google counts thinking in the total alone."""
        rest = _count(self.usage, "total_tokens") - _count(self.usage, "prompt_tokens")
        return max(_count(self.usage, "completion_tokens"), rest)

    def usage_for(self, messages: Sequence[Message]) -> Usage:
        """Return the tokens of the call; estimated if the server does not report them."""
        if read := _count(self.usage, "prompt_tokens"):
            cached = _count(self.usage, "prompt_tokens_details", "cached_tokens")
            cached = cached or _count(self.usage, "prompt_cache_hit_tokens")  # DeepSeek
            return Usage(read, self._output_tokens, cached)
        return Usage(
            estimate_prompt(messages), estimate_tokens(self.thinking + (self.content or ""))
        )


def read_reply(answer: Any, path: str) -> ServerReply:
    """Read a whole answer from an address, or raise Garbled."""
    reply = ServerReply()
    if path == RESPONSES:
        _take_response(reply, answer)
    else:
        reply.add(answer, "message")
    return reply.check()


async def read_stream(
    stream: AsyncStream[Any], path: str, show: Callable[[str], object]
) -> ServerReply:
    """Read a streamed answer from an address, or raise Garbled.

    `show` gets all the visible text so far, each time there is more.
    """
    reply = ServerReply()
    visible, filtered = "", ThinkingFilter()
    try:
        async with stream:
            async for chunk in stream:
                if piece := (
                    _take_event(reply, chunk) if path == RESPONSES else reply.add(chunk, "delta")
                ):
                    visible += filtered.feed(piece)
                    show(visible)
    except APIConnectionError as error:  # the client retries none inside a stream
        raise error.__cause__ or error from None
    if reply.finish_reason is None:
        raise Garbled("the stream broke off before its end")
    return reply.check()


def _thinking(message: Any) -> str:
    # DeepSeek and llama-server write reasoning_content, newer vLLM and Ollama reasoning.
    for name in ("reasoning_content", "reasoning"):
        if isinstance(text := message.get(name), str):
            return text
    return ""


def _count(usage: Any, *names: str) -> int:
    """Return a number that a server reports somewhere in its usage; 0 if it does not."""
    for name in names:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) and usage > 0 else 0


def estimate_prompt(messages: Sequence[Message]) -> int:
    """Estimate how many tokens messages have in a chat template.

    Four mark a message (begin, role, line break, end), three more ask for the answer, as in
    OpenAI's models and in ChatML. Templates that add a system prompt of their own cost more.
    """
    return sum(estimate_tokens(message.content) + 4 for message in messages) + 3


RESPONSES = "/responses"
_LEAST_TOKENS = 16  # a lower limit is refused
_ENDS = ("response.completed", "response.incomplete", "response.failed")


def to_responses(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of a request to /chat/completions in the form of /responses."""
    rest = dict(body)
    limit = max(rest.pop(name, 0) for name in ("max_tokens", "max_completion_tokens"))
    made = {
        "input": rest.pop("messages"),
        "max_output_tokens": max(limit, _LEAST_TOKENS),
        "store": False,  # else OpenAI keeps the documents' text for 30 days
    }
    rest.pop("stream_options", None)  # the last event has the usage anyway
    if form := rest.pop("response_format", None):
        made["text"] = {"format": {"type": "json_schema", **form["json_schema"]}}
    if effort := rest.pop("reasoning_effort", None):
        made["reasoning"] = {"effort": effort}
    return {**made, **rest}


def _take_response(reply: ServerReply, answer: Any) -> None:
    """Take a whole answer, or that at the end of a stream."""
    try:
        if error := answer.get("error"):
            raise _failed(error)
        messages = [item for item in answer["output"] if item["type"] == "message"]
        parts = [part for message in messages for part in message["content"]]
        said = [part.get("text") or part.get("refusal") or "" for part in parts]
        reply.content = "".join(said) if parts else None
        reply.refused = any("refusal" in part for part in parts)
        why = (answer.get("incomplete_details") or {}).get("reason")
        usage = answer.get("usage") or {}
        reply.usage = {
            "prompt_tokens": usage.get("input_tokens"),
            "completion_tokens": usage.get("output_tokens"),
            "prompt_tokens_details": usage.get("input_tokens_details"),
            "completion_tokens_details": usage.get("output_tokens_details"),
        }
    except (AttributeError, LookupError, TypeError):
        raise Garbled("it has no output") from None
    reply.finish_reason = "length" if why == "max_output_tokens" else why or "stop"


def _take_event(reply: ServerReply, event: Any) -> str:
    """Take an event of a stream; return its text."""
    try:
        kind = event["type"]
        if kind in _ENDS:
            _take_response(reply, event["response"])
        elif kind == "error":
            raise _failed(event)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            return str(event["delta"])
    except (LookupError, TypeError):
        raise Garbled("its event has no type") from None
    return ""


def _failed(error: Mapping[str, Any]) -> APIError:
    """Return the error that the client raises for one in a stream of /chat/completions."""
    return APIError(str(error.get("message")), cast("Any", None), body=error)
