"""JSON schemas that the decoding is held to, through llguidance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colligate.errors import MissingExtra, RequestRefused

_KEPT = 64  # schemas whose grammars are kept
_LARGEST = 1 << 53
# One blank after a comma or colon and none elsewhere: a model cannot go on with blanks for ever.
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}

_SCHEMAS = {"items", "prefixItems", "anyOf", "oneOf", "additionalProperties"}
_NAMES = {"properties", "patternProperties"}
_NAMED_SCHEMAS = _NAMES | {"$defs", "definitions"}
_SAYS_MORE = {"additionalProperties", "unevaluatedProperties", "anyOf", "oneOf", "$ref"}


class Grammar:
    """How far an answer has come in the JSON that a schema allows."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def copy(self) -> Grammar:
        """As far as this one has come, for another answer."""
        return Grammar(self._matcher.deep_copy())

    @property
    def complete(self) -> bool:
        """Whether the JSON is whole and nothing may follow."""
        return bool(self._matcher.is_stopped())

    def allowed(self, vocabulary: int, ends: Iterable[int]) -> NDArray[np.bool_]:
        """Which tokens of a vocabulary may come next; `ends` may when the JSON can end here.

        A model often has logits for more tokens than there are: those never may.

        Raises:
            RequestRefused: the schema became too complex.
        """
        mask = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)[:vocabulary] != 0
        self._check()
        allowed = np.zeros(vocabulary, np.bool_)
        allowed[: len(mask)] = mask
        allowed[[end for end in ends if end < vocabulary]] = self._matcher.is_accepting()
        return allowed

    def take(self, token: int) -> None:
        """Go on by a token that is allowed."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refused(self._matcher.get_error())


class Grammars:
    """Grammars over the tokens of a (fast) tokenizer, made once for each schema."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens: Any = None
        self._made: dict[str, Grammar] = {}

    def of(self, schema: Mapping[str, Any]) -> Grammar:
        """The grammar of a JSON schema at its beginning; each answer goes on from a copy.

        An object has the properties that are named and no others, unless the schema says more:
        else a model may add properties for ever.

        Raises:
            RequestRefused: the schema uses what cannot be held, or nothing satisfies it.
            MissingExtra: llguidance is not installed.
        """
        key = json.dumps(schema)  # in the order given: properties are written in it
        if key not in self._made:
            if len(self._made) == _KEPT:
                del self._made[next(iter(self._made))]
            plain = json.loads(key, parse_int=_number, parse_float=_number)
            closed = plain if '"allOf"' in key else _closed(plain)
            matcher = self._matcher(json.dumps(closed))
            if matcher.is_error():
                raise _refused(matcher.get_error())
            self._made[key] = Grammar(matcher)
        return self._made[key]

    def _matcher(self, schema: str) -> Any:
        try:
            library, hf = import_module("llguidance"), import_module("llguidance.hf")
        except ImportError as error:
            raise MissingExtra(
                "answers held to a schema need llguidance",
                f"{error.name} is not installed",
                "pip install 'colligate[local]'",
            ) from error
        try:
            if self._tokens is None:
                self._tokens = hf.from_tokenizer(self._tokenizer)
            grammar = library.LLMatcher.grammar_from_json_schema(schema, overrides=_COMPACT)
        except ValueError as error:  # no such tokens, or no JSON
            raise _refused(str(error)) from error
        return library.LLMatcher(self._tokens, grammar, log_level=0)


def _closed(schema: Any) -> Any:
    """The schema, or list of schemas, with no properties but those it names."""
    if isinstance(schema, list):
        return [_closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    for key, value in schema.items():
        if key in _SCHEMAS:
            closed[key] = _closed(value)
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            closed[key] = {name: _closed(each) for name, each in value.items()}
    if _NAMES & schema.keys() and not _SAYS_MORE & schema.keys():
        closed["additionalProperties"] = False
    return closed


def _number(digits: str) -> int | float:
    """A number of a schema. llguidance takes others for larger ones, or ends the process."""
    number = float(digits)
    if abs(number) >= _LARGEST:
        raise _refused(f"it has the number {digits[:40]}, and the largest is {_LARGEST - 1}")
    return number if any(mark in digits for mark in ".eE") else int(digits)


def _refused(why: str) -> RequestRefused:
    lines = [line.strip() for line in why.partition("<state>")[0].splitlines() if line.strip()]
    # Of a pattern's faults the last line names the fault, the others draw it.
    said = f"{lines[0]} {lines[-1]}" if len(lines) > 1 else "".join(lines)
    return RequestRefused("the decoding cannot be held to this schema", said[:300])
