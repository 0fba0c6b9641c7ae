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
# One blank after a comma or colon and none elsewhere: a model cannot go on with blanks for ever.
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


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

    def __init__(self, tokenizer: Any, vocabulary: int) -> None:
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._tokens: Any = None
        self._made: dict[str, Grammar] = {}

    def of(self, schema: Mapping[str, Any]) -> Grammar:
        """The grammar of a JSON schema at its beginning; each answer goes on from a copy.

        Raises:
            RequestRefused: the schema uses what cannot be held, or nothing satisfies it.
            MissingExtra: llguidance is not installed.
        """
        key = json.dumps(schema)  # in the order given: properties are written in it
        if key not in self._made:
            if len(self._made) == _KEPT:
                del self._made[next(iter(self._made))]
            self._made[key] = self._make(key)
        return self._made[key]

    def _make(self, schema: str) -> Grammar:
        try:
            library, hf = import_module("llguidance"), import_module("llguidance.hf")
        except ImportError as error:
            raise MissingExtra(
                "answers held to a schema need llguidance",
                f"{error.name} is not installed",
                "pip install 'colligate[local]'",
            ) from error
        if self._tokens is None:
            # A model often has rows for more tokens than there are; never for fewer.
            size = max(self._vocabulary, len(self._tokenizer))
            self._tokens = hf.from_tokenizer(self._tokenizer, n_vocab=size)
        try:
            grammar = library.LLMatcher.grammar_from_json_schema(schema, overrides=_COMPACT)
        except ValueError as error:
            raise _refused(str(error)) from error
        matcher = library.LLMatcher(self._tokens, grammar, log_level=0)
        if matcher.is_error():
            raise _refused(matcher.get_error())
        return Grammar(matcher)


def _refused(why: str) -> RequestRefused:
    lines = [line.strip() for line in why.partition("<state>")[0].splitlines() if line.strip()]
    # Of a pattern's faults the last line names the fault, the others draw it.
    said = f"{lines[0]} {lines[-1]}" if len(lines) > 1 else "".join(lines)
    return RequestRefused("the decoding cannot be held to this schema", said[:300])
