"""The parameters that a server accepts.

"OpenAI-compatible" servers differ in them, which only a request shows: the first refusal that
names a parameter is remembered, and later calls are right at once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import openai

from colligate.models.base import ChatRequest
from colligate.models.openai_http import error_message, is_context_error
from colligate.models.structured import with_schema

_ROOM_TO_THINK = 4096
_OPTIONAL = ("temperature", "seed", "stream", "stream_options")
_LIMITS = ("max_tokens", "max_completion_tokens")
_NO_SUCH = re.compile(
    r"unsupported|(not|n't) (be )?(support|permit|allow|accept|recogni[sz]ed)|unrecogni[sz]ed"
    r"|unknown|unexpected|deprecated|use .{0,3}max_|extra|strictly positive|may only be set",
    re.IGNORECASE,
)
# Of a reasoning model that thought up to the limit; others end with `finish_reason` "length".
_ONLY_THOUGHT = re.compile(r"could not finish the message because max_tokens", re.IGNORECASE)
_SHORT = 300  # characters of a message; a longer one may repeat the prompt
_OTHER_API = re.compile(r"v1/responses|not a chat model|OperationNotSupported", re.IGNORECASE)
_SCHEMA_WORDS = re.compile(r"response_format|json_schema|schema|grammar", re.IGNORECASE)


class Dialect:
    """The parameters that one model at one endpoint accepts, learnt from what it refuses.

    `extra` are those that the user adds to every request: they are sent as they are, and an error
    if they are refused.
    """

    def __init__(
        self, model: str, *, is_openai: bool, extra: Mapping[str, Any] | None = None
    ) -> None:
        self._model = model
        self._extra = extra or {}
        # OpenAI's newer models refuse the old name; most other servers know only that.
        self._limit = _LIMITS[1] if is_openai else _LIMITS[0]
        self._limit_settled = False
        self._dropped: set[str] = set()
        self._warnings: list[str] = []
        self.enforces_schemas = True  # until one is refused or ignored
        self.needs_responses = False  # whether only /responses serves the model
        thinking = self._extra.get("thinking")  # Anthropic's: its budget is a part of the limit
        budget = thinking.get("budget_tokens") if isinstance(thinking, Mapping) else 0
        self.thinking_room = budget if isinstance(budget, int) else 0

    def body(self, request: ChatRequest, **extra: Any) -> dict[str, Any]:
        """Return the body of a request, without parameters that were refused before."""
        messages, schema = request.messages, request.schema
        if schema is not None and not self.enforces_schemas:
            messages = with_schema(messages, schema)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            self._limit: request.max_tokens + self.thinking_room,
        }
        optional = {"temperature": request.temperature, "seed": request.seed, **extra}
        body |= {k: v for k, v in optional.items() if v is not None and k not in self._dropped}
        if schema is not None and self.enforces_schemas:
            named = {"name": "answer", "schema": make_strict(schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return {**body, **self._extra}

    def learn(self, error: openai.APIStatusError, sent: Mapping[str, Any]) -> bool:
        """Learn from a refusal; False when it is not about a parameter that can be left out."""
        if is_context_error(error):
            return False
        message = f"{error.param or ''} {error.code or ''} {error_message(error)}"
        if _OTHER_API.search(message[:_SHORT]):
            known_before, self.needs_responses = self.needs_responses, True
            return not known_before
        if _ONLY_THOUGHT.search(message):
            had_room = sent.get(self._limit, 0) > self.thinking_room > 0
            self.give_room_to_think()
            return not had_room
        known = [name for name in sent if name in _OPTIONAL + _LIMITS and name not in self._extra]
        if "response_format" in sent and error.param not in known and _SCHEMA_WORDS.search(message):
            self._enforce_no_more()
            return True
        named = find_refused_parameter(error, known)
        if named is None or not _NO_SUCH.search(message):
            return False  # a value out of bounds too: the caller must learn of it
        if named in _OPTIONAL:
            if named not in self._dropped and not named.startswith("stream"):
                self._warnings.append(f"{self._model} does not take {named}; it was left out")
            self._dropped.add(named)
            return True
        if named == self._limit and self._limit_settled:
            return False
        # The same meaning under another name: nothing to warn about.
        self._limit = _LIMITS[1 - _LIMITS.index(named)]
        self._limit_settled = True
        return True

    def notice(self, answer: str, schema: Mapping[str, Any]) -> None:
        """Learn from a whole answer to an enforced schema whether the server ignores schemas.

        It does if the answer is no JSON, or has none of the schema's names.
        """
        try:
            value = json.loads(answer)
        except (ValueError, RecursionError):
            return self._enforce_no_more()
        names = set(schema.get("properties", ()))
        if names and not (isinstance(value, dict) and names & value.keys()):
            self._enforce_no_more()

    def _enforce_no_more(self) -> None:
        if self.enforces_schemas:  # else learnt meanwhile
            self.enforces_schemas = False
            self._warnings.append(
                f"{self._model} does not enforce a JSON schema; the prompt asks for the form"
            )

    def give_room_to_think(self) -> None:
        """Allow more tokens than those of the answer."""
        if self.thinking_room < _ROOM_TO_THINK:
            self.thinking_room = _ROOM_TO_THINK
            self._warnings.append(
                f"{self._model} spent all its tokens on thinking; "
                f"it now has {_ROOM_TO_THINK} more for that"
            )

    def take_warnings(self) -> tuple[str, ...]:
        """Return the warnings that were not reported yet."""
        warnings, self._warnings = tuple(self._warnings), []
        return warnings


def make_strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema for strict decoders: all properties required, no others allowed.

    A value that satisfies it satisfies the given schema too.
    """

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        if "$ref" in node:
            return {"$ref": node["$ref"]}  # strict decoders allow nothing next to it
        strict = {key: walk(value) for key, value in node.items() if key != "default"}
        properties = node.get("properties")
        if node.get("type") == "object" and isinstance(properties, Mapping):
            strict["properties"] = {name: walk(value) for name, value in properties.items()}
            strict["required"] = list(properties)
            strict["additionalProperties"] = False
        return strict

    result: dict[str, Any] = walk(schema)
    return result


def find_refused_parameter(error: openai.APIStatusError, sent: Sequence[str]) -> str | None:
    """Return the parameter of a refusal: the declared one, otherwise the first in its message."""
    if error.param in sent:
        return error.param
    message = error_message(error).lower()
    places = {name: found.start() for name in sent if (found := re.search(rf"\b{name}\b", message))}
    return min(places, key=places.__getitem__, default=None)
