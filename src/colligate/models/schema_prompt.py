"""A JSON schema in the prompt, for models whose decoding cannot be held to one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from colligate.models.protocols import Message


def schema_instruction(schema: Mapping[str, Any]) -> str:
    """What a prompt says when the decoding cannot be held to the schema."""
    return (
        "Answer with one JSON object that satisfies this JSON schema, and with nothing else:\n"
        + json.dumps(schema, ensure_ascii=False)
    )


def with_schema(messages: Sequence[Message], schema: Mapping[str, Any]) -> list[Message]:
    """The messages with the schema at their end; unchanged when they have it already."""
    instruction = schema_instruction(schema)
    if any(
        message.role == "user" and message.content.endswith(instruction) for message in messages
    ):
        return list(messages)
    if messages and messages[-1].role == "user":  # some templates need turns to alternate
        *before, last = messages
        return [*before, Message("user", f"{last.content}\n\n{instruction}")]
    return [*messages, Message("user", instruction)]
