"""What one model at one endpoint turned out to accept, learnt from what it refused.

"OpenAI-compatible" servers differ in the parameters they take. Asking is the only way to
know: the first refusal that names a parameter teaches it, every later call is right at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import openai

from colligate.models.failures import error_message
from colligate.models.protocols import Message
from colligate.models.schema_prompt import with_schema
from colligate.models.text import encodable

SchemaForm = Literal["json_schema", "json_object", "prompt"]

_OPTIONAL = ("temperature", "seed", "stop", "stream_options")
_LIMITS = ("max_tokens", "max_completion_tokens")
_NO_SUCH = re.compile(
    r"unsupported|(not|n't) (be )?(support|permit|allow|accept|recogni[sz]ed)|unrecogni[sz]ed"
    r"|unknown|unexpected|deprecated|use .{0,3}max_|extra|strictly positive",
    re.IGNORECASE,
)
_SCHEMA_WORDS = re.compile(r"response_format|json_schema|json_object|schema|grammar", re.IGNORECASE)


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema as strict decoders want it: every property required, no others allowed.

    What satisfies it satisfies the given schema too.
    """

    def walk(node: Any) -> Any:
        if isinstance(node, list):
            return [walk(item) for item in node]
        if not isinstance(node, Mapping):
            return node
        if "$ref" in node:
            return {"$ref": node["$ref"]}  # strict decoders allow nothing beside it
        strict = {key: walk(value) for key, value in node.items() if key != "default"}
        properties = node.get("properties")
        if node.get("type") == "object" and isinstance(properties, Mapping):
            strict["properties"] = {name: walk(value) for name, value in properties.items()}
            strict["required"] = list(properties)
            strict["additionalProperties"] = False
        return strict

    result: dict[str, Any] = walk(schema)
    return result


class Dialect:
    """The parameters of one model at one endpoint."""

    def __init__(self, model: str, *, is_openai: bool) -> None:
        self._model = model
        # OpenAI's newer models refuse the old name, most other servers only know that.
        self._limit = _LIMITS[1] if is_openai else _LIMITS[0]
        self._limit_settled = False
        self._dropped: set[str] = set()
        self._warnings: list[str] = []
        self.schema_form: SchemaForm = "json_schema"
        self.thinking_room = 0

    def takes(self, parameter: str) -> bool:
        """Whether the model has not refused the parameter."""
        return parameter not in self._dropped

    def request(
        self,
        messages: Sequence[Message],
        *,
        max_tokens: int,
        schema: Mapping[str, Any] | None = None,
        **optional: Any,
    ) -> dict[str, Any]:
        """The body of a request, without what is None or was refused before."""
        if schema is not None and self.schema_form != "json_schema":
            messages = with_schema(messages, schema)
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [{"role": m.role, "content": encodable(m.content)} for m in messages],
            self._limit: max_tokens + self.thinking_room,
        }
        body |= {
            name: value
            for name, value in optional.items()
            if value is not None and name not in self._dropped
        }
        if schema is None:
            return body
        if self.schema_form == "json_schema":
            held = {"name": "answer", "schema": strict_schema(schema), "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": held}
        elif self.schema_form == "json_object":
            body["response_format"] = {"type": "json_object"}
        return body

    def learn(self, error: openai.APIStatusError, sent: Mapping[str, Any]) -> bool:
        """Learn from a refusal; False when it is not about a parameter that could be left out."""
        said = f"{error.param or ''} {error.code or ''} {error_message(error)}"
        known = [name for name in sent if name in _OPTIONAL + _LIMITS]
        if "response_format" in sent and error.param not in known and _SCHEMA_WORDS.search(said):
            self._lower_schema_form(sent["response_format"]["type"])
            return True
        named = refused_parameter(error, known)
        if named is None or not _NO_SUCH.search(said):
            return False  # Also a value out of bounds: whoever chose it should know.
        if named in _OPTIONAL:
            if named not in self._dropped and named != "stream_options":
                self._warnings.append(f"{self._model} does not take {named}; it was left out")
            self._dropped.add(named)
            return True
        if named == self._limit and self._limit_settled:
            return False
        # The same meaning under another name: nothing to warn about.
        self._limit = _LIMITS[1 - _LIMITS.index(named)]
        self._limit_settled = True
        return True

    def _lower_schema_form(self, refused: str) -> None:
        if refused != self.schema_form:
            return  # a call made at the same time has learnt it already
        if refused == "json_schema":
            self.schema_form, now = "json_object", "JSON mode"
        else:
            self.schema_form, now = "prompt", "the prompt alone"
        self._warnings.append(f"{self._model} cannot be held to a JSON schema; {now} asks for it")

    def give_room_to_think(self, tokens: int) -> None:
        """Allow that many tokens beyond what the caller allows the answer."""
        if self.thinking_room < tokens:
            self.thinking_room = tokens
            self._warnings.append(
                f"{self._model} spent all its tokens on thinking; it now has {tokens} more for that"
            )

    def take_warnings(self) -> tuple[str, ...]:
        """What was learnt and not said yet."""
        warnings, self._warnings = tuple(self._warnings), []
        return warnings


def refused_parameter(error: openai.APIStatusError, sent: Sequence[str]) -> str | None:
    """Which of the parameters sent the refusal is about: as declared, else the first it names."""
    if error.param in sent:
        return error.param
    said = error_message(error)
    places = {name: found.start() for name in sent if (found := re.search(rf"\b{name}\b", said))}
    return min(places, key=places.__getitem__, default=None)
