"""Constrain the decoding to JSON schemas, through llguidance."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from cachetools import LRUCache
from llguidance import LLMatcher, LLTokenizer
from numpy.typing import NDArray

from colligate.errors import RequestRefused

_CACHED = 64  # schemas whose grammars are kept
# A blank, or a line break with blanks: as models write JSON by themselves, but not for ever.
_LAYOUT: Any = {"whitespace_flexible": True, "whitespace_pattern": "( |\\n {0,16})?"}


class Grammars:
    """Grammars over the tokens of a model, compiled once for each schema.

    `make_tokens` returns the tokens for llguidance, at the first schema; ValueError from it, for
    tokens that llguidance cannot use, becomes RequestRefused.
    """

    def __init__(self, make_tokens: Callable[[], LLTokenizer]) -> None:
        self._make_tokens = make_tokens
        self._tokens: LLTokenizer | None = None
        self._compiled: LRUCache[str, Grammar] = LRUCache(_CACHED)

    def compile(self, schema: Mapping[str, Any]) -> Grammar:
        """Return the grammar of a JSON schema in its first state; each answer uses a copy.

        An object has the named properties and no others, unless the schema says otherwise:
        a model could add properties for ever.
        """
        key = json.dumps(schema)  # in the given order: properties are written in it
        if key not in self._compiled:
            plain = json.loads(key, parse_int=_parse_number, parse_float=_parse_number)
            closed = plain if '"allOf"' in key else _close_objects(plain)
            matcher = self._matcher(json.dumps(closed))
            if matcher.is_error():
                raise _refusal(matcher.get_error())
            self._compiled[key] = Grammar(matcher)
        return self._compiled[key]

    def _matcher(self, schema: str) -> LLMatcher:
        try:
            if self._tokens is None:
                self._tokens = self._make_tokens()
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_LAYOUT)
        except ValueError as error:  # the tokenizer has no such tokens, or the text is not JSON
            raise _refusal(str(error)) from error
        return LLMatcher(self._tokens, grammar, log_level=0)


class Grammar:
    """The state of one answer in the JSON that a schema allows."""

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def copy(self) -> Grammar:
        return Grammar(self._matcher.deep_copy())

    @property
    def complete(self) -> bool:
        """Whether the JSON is complete and nothing may follow."""
        return bool(self._matcher.is_stopped())

    def compute_mask(self, vocabulary: int, ends: Iterable[int]) -> NDArray[np.bool_]:
        """Compute which tokens of a vocabulary may come next; `ends` may if the JSON can end here.

        A model often has logits for more tokens than its tokenizer: those are never allowed.
        RequestRefused if the schema became too complex.
        """
        mask = np.frombuffer(self._matcher.compute_logit_bias(), np.uint8)[:vocabulary] != 0
        self._check()
        allowed = np.zeros(vocabulary, np.bool_)
        allowed[: len(mask)] = mask
        allowed[[end for end in ends if end < vocabulary]] = self._matcher.is_accepting()
        return allowed

    def forced_tokens(self) -> list[int]:
        """Return tokens that must come next in one spelling of them; often there are none."""
        return list(self._matcher.compute_ff_tokens())

    def advance(self, token: int) -> None:
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise _refusal(self._matcher.get_error())


_SCHEMAS = {"items", "prefixItems", "anyOf", "oneOf", "additionalProperties"}
_NAMES = {"properties", "patternProperties"}
_NAMED_SCHEMAS = _NAMES | {"$defs", "definitions"}
_OPEN = {"additionalProperties", "unevaluatedProperties", "anyOf", "oneOf", "$ref"}


def _close_objects(schema: Any) -> Any:
    """Return the schema, or list of schemas, without properties that it does not name."""
    if isinstance(schema, list):
        return [_close_objects(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    closed = dict(schema)
    for key, value in schema.items():
        if key in _SCHEMAS:
            closed[key] = _close_objects(value)
        elif key in _NAMED_SCHEMAS and isinstance(value, dict):
            closed[key] = {name: _close_objects(each) for name, each in value.items()}
    if _NAMES & schema.keys() and not _OPEN & schema.keys():
        closed["additionalProperties"] = False
    return closed


_LIMIT = 1 << 53


def _parse_number(digits: str) -> int | float:
    """Parse a number of a schema. llguidance misreads larger ones, or ends the process."""
    number = float(digits)
    if abs(number) >= _LIMIT:
        raise _refusal(f"it has the number {digits[:40]}, and the largest is {_LIMIT - 1}")
    return number if any(mark in digits for mark in ".eE") else int(digits)


def _refusal(why: str) -> RequestRefused:
    lines = [line.strip() for line in why.partition("<state>")[0].splitlines() if line.strip()]
    # For a faulty pattern the last line names the fault; the others draw it.
    reason = f"{lines[0]} {lines[-1]}" if len(lines) > 1 else "".join(lines)
    return RequestRefused("the decoding cannot be constrained to this schema", reason[:300])
