"""Ask at OpenAI's /responses, the only address that serves some of its models.

https://platform.openai.com/docs/api-reference/responses
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import openai

from colligate.models.openai_http import Garbled
from colligate.models.replies import ServerReply

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


def read_response(answer: Any) -> ServerReply:
    """Read a whole answer, or raise Garbled."""
    reply = ServerReply()
    take_response(reply, answer)
    return reply.check()


def take_response(reply: ServerReply, answer: Any) -> None:
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


def take_event(reply: ServerReply, event: Any) -> str:
    """Take an event of a stream; return its text."""
    try:
        kind = event["type"]
        if kind in _ENDS:
            take_response(reply, event["response"])
        elif kind == "error":
            raise _failed(event)
        elif kind in ("response.output_text.delta", "response.refusal.delta"):
            return str(event["delta"])
    except (LookupError, TypeError):
        raise Garbled("its event has no type") from None
    return ""


def _failed(error: Mapping[str, Any]) -> openai.APIError:
    """Return the error that the client raises for one in a stream of /chat/completions."""
    return openai.APIError(str(error.get("message")), cast("Any", None), body=error)
