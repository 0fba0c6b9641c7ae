"""Decoding held to a JSON schema: whatever a model would rather write, the answer satisfies it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import llguidance.hf
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, create_model

from colligate.errors import RequestRefused
from colligate.models.decoding import GeneratedText, GenerationRequest
from colligate.models.grammar import Grammars
from colligate.models.hf.generate import BatchGenerator
from support.tiny_models import TinyModel, finish

pytestmark = pytest.mark.usefixtures("one_thread")


class Constrained(TinyModel):
    """A random model that would write anything, and its answers with schemas."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.grammars = Grammars(partial(llguidance.hf.from_tokenizer, self.tokenizer))
        self.generator = BatchGenerator(self.runtime, self.tokenizer)

    def answers(
        self, *schemas: dict[str, Any], max_tokens: int = 300, temperature: float = 1.0
    ) -> list[GeneratedText]:
        requests = [
            GenerationRequest(
                [17, 80, 31 + number],
                max_tokens,
                temperature=temperature,
                seed=number,
                grammar=self.grammars.compile(schema),
            )
            for number, schema in enumerate(schemas)
        ]
        for request in requests:
            self.generator.submit(request)
        return [finish(self.generator, request) for request in requests]

    def accepts(self, schema: dict[str, Any], text: str) -> bool:
        """Whether the decoding may write this text and end there."""
        grammar, end = self.grammars.compile(schema).copy(), self.tokenizer.eos_token_id
        for token in self.tokenizer.encode(text):
            if not grammar.compute_mask(448, [end])[token]:
                return False
            grammar.advance(token)
        return grammar.complete or bool(grammar.compute_mask(448, [end])[end])


@pytest.fixture(scope="module")
def tiny(tiny_folder: Callable[..., Path]) -> Constrained:
    # More rows of logits than there are tokens, as many models have.
    return Constrained(tiny_folder("llama", vocab_size=448))


class Chain(BaseModel):
    last: bool
    next: Chain | None = None


Typed = tuple[Any, Any]


def ranged(low: int, high: int, width: int, make: Callable[[int, int], Typed]) -> Any:
    """`make` of the ends of a range that begins in [low, high] and is at most so wide."""
    return st.builds(
        lambda first, more: make(first, first + more), st.integers(low, high), st.integers(0, width)
    )


def lists(field: Typed) -> st.SearchStrategy[Typed]:
    return ranged(0, 2, 2, lambda a, b: (list[Annotated[field]], Field(min_length=a, max_length=b)))


def fields() -> st.SearchStrategy[Typed]:
    """Types and constraints with which answers end soon."""
    values = st.text(max_size=5) | st.integers(-(2**53) + 1, 2**53 - 1) | st.booleans() | st.none()
    leaf = st.one_of(
        ranged(0, 3, 4, lambda a, b: (str, Field(min_length=a, max_length=b))),
        ranged(-1000, 1000, 1000, lambda a, b: (int, Field(ge=a, le=b))),
        st.sampled_from([r"^\w\d{2}$", "^(a|bc)*d$", r"é+\s?x"]).map(
            lambda pattern: (str, Field(pattern=pattern, max_length=9))
        ),
        st.lists(values, min_size=1, max_size=3).map(lambda v: (Literal[tuple(v)], ...)),
        st.sampled_from([(bool, ...), (None, ...)]),
    )
    return st.recursive(
        leaf,
        lambda inner: st.one_of(
            inner.flatmap(lists),
            inner.map(lambda field: (Annotated[field] | None, None)),
            objects(inner),
        ),
        max_leaves=6,
    )


def objects(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    name = st.from_regex(r"[a-z][a-z_]{0,6}", fullmatch=True).filter(
        lambda n: not hasattr(BaseModel, n)
    )
    named = st.dictionaries(name, inner, min_size=1, max_size=3)
    return named.map(lambda f: (create_model("Part", **f), ...))


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(field=objects(fields()), temperature=st.sampled_from([0.0, 1.0, 5.0]))
def test_any_schema_is_satisfied(tiny, field, temperature):
    model: TypeAdapter[Any] = TypeAdapter(field[0])
    for answer in tiny.answers(*[model.json_schema()] * 2, temperature=temperature):
        if answer.finish_reason == "stop":
            model.validate_json(answer.text)
        else:
            assert answer.output_tokens == 300


def test_an_answer_cut_short_says_so(tiny):
    (answer,) = tiny.answers(Chain.model_json_schema(), max_tokens=5)
    assert (answer.finish_reason, answer.output_tokens) == ("length", 5)


def test_any_end_token_of_the_model_ends_an_answer_where_it_may_end(tiny):
    end = tiny.tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert end != tiny.tokenizer.eos_token_id

    with tiny.changing_logits(lambda logits: logits[..., end].fill_(1e6)):
        number, listed = tiny.answers({"type": "integer"}, {"const": [1, "a"]})
    assert number.text in set("-0123456789") or number.text[1:] in set("123456789")
    assert number.finish_reason == "stop"
    assert json.loads(listed.text) == [1, "a"]


def test_objects_have_more_properties_only_where_the_schema_says_so(tiny):
    # Named like parts of schemas, to see that names are not taken for them.
    names = {"properties": {"type": "null"}, "items": {"enum": [{"properties": 1}]}}
    part: dict[str, Any] = {"type": "object", "properties": names}
    more = {"additionalProperties": {"type": "null"}}
    whole = '{"properties": null, "items": {"properties": 1}}'
    for held in (part, {"$ref": "#/$defs/p", "$defs": {"p": part}}, {"anyOf": [part]}):
        assert tiny.accepts(held, whole)
        assert not tiny.accepts(held, '{"b": null}')
        assert not tiny.accepts(held, whole[:-1] + ', "b": null}')
    for open_ in (part | more, {"type": "object"} | more, {"allOf": [part, {"required": ["b"]}]}):
        assert tiny.accepts(open_, '{"b": null}')
    assert tiny.accepts({"type": "array", "items": part}, f"[{whole}, {{}}]")
    assert not tiny.accepts({"type": "array", "items": part}, '[{"b": null}]')
    patterns = {"type": "object", "patternProperties": {"^x$": part}}
    assert tiny.accepts(patterns, f'{{"x": {whole}}}')
    assert not tiny.accepts(patterns, '{"y": 1}')


@pytest.mark.parametrize("depth", [1, 4])
def test_schemas_that_hold_themselves(tiny, depth):
    text = '{"last": false, "next": ' * depth + '{"last": true, "next": null}' + "}" * depth
    assert tiny.accepts(Chain.model_json_schema(), text)
    assert not tiny.accepts(Chain.model_json_schema(), text[:-1])
    assert not tiny.accepts(Chain.model_json_schema(), text.replace("true", "0"))


def test_blanks_cannot_go_on(tiny):
    blank = torch.tensor([i for i in range(400) if not tiny.tokenizer.decode([i]).strip(" \t\n\r")])
    assert len(blank) >= 4

    schema = {
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3}},
        "required": ["a"],
    }

    def favour_blanks(logits: torch.Tensor) -> None:
        logits[..., blank] += 50.0

    with tiny.changing_logits(favour_blanks):
        (answer,) = tiny.answers(schema)
    assert answer.finish_reason == "stop"
    assert set(json.loads(answer.text)) == {"a"}
    assert not re.search(r"\s{18}", answer.text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        {"type": "string", "pattern": "(?=a)b"},
        {"type": "string", "pattern": "(a"},
        {"$ref": "https://example.org/schema"},
        {"$ref": "#/$defs/absent"},
        {"type": "strin"},
        {"not": {"type": "string"}},
        {"type": "integer", "minimum": 5, "maximum": 1},
        {"const": "\ud800"},
        {"enum": []},
        {"type": "integer", "enum": [1, 9223372036854775808]},
        {"type": "integer", "minimum": -1e30, "maximum": -1e29},
        {"const": -(10**400)},
    ],
    ids=lambda schema: str(schema)[:60],
)
def test_a_schema_that_cannot_be_held_is_refused_in_a_line(tiny, schema):
    with pytest.raises(RequestRefused, match="cannot be constrained to this schema: ") as caught:
        tiny.grammars.compile(schema)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert tiny.answers({"type": "null"})[0].text == "null"
