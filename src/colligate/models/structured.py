"""Read a Pydantic object from a model's answer, and ask for one in a prompt.

The decoding is constrained to the schema where the backend can do that; otherwise the schema is in
the prompt. In both cases the answer is extracted, mended and validated. Constrained decoding alone
is not enough: a server may ignore the schema, and an answer may be cut. `Run.structured` asks.
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, Generic, Literal, TypeVar

import json_repair
from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import from_json

from colligate.models.base import Completion, Message, encodable
from colligate.models.escaping import escape

T = TypeVar("T", bound=BaseModel)


@dataclass(frozen=True)
class StructuredReply(Generic[T]):
    """The object, and the answers that were needed for it, the last one being its text."""

    value: T
    completions: tuple[Completion, ...]


def ask_again(messages: Sequence[Message], answer: str, problem: str) -> list[Message]:
    """Return a prompt with an answer that cannot be used, and what is wrong with it.

    An answer may repeat a document's text: it cannot end its turn.
    """
    correct = f"That is not valid: {problem}. Answer again with the corrected JSON object only."
    said = escape(answer[:4000]) or "(nothing)"
    return [*messages, Message("assistant", said), Message("user", escape(correct))]


# A JSON schema in the prompt, for models whose decoding cannot be constrained


def schema_instruction(schema: Mapping[str, Any]) -> str:
    """Return the sentence that asks for the schema in a prompt."""
    return (
        "Answer with one JSON object that satisfies this JSON schema, and with nothing else:\n"
        + json.dumps(schema, ensure_ascii=False)
    )


def with_schema(messages: Sequence[Message], schema: Mapping[str, Any]) -> list[Message]:
    """Return the messages with the schema at their end; unchanged if it is there already."""
    instruction = schema_instruction(schema)
    if any(
        message.role == "user" and message.content.endswith(instruction) for message in messages
    ):
        return list(messages)
    if messages and messages[-1].role == "user":  # some templates need turns to alternate
        *before, last = messages
        return [*before, Message("user", f"{last.content}\n\n{instruction}")]
    return [*messages, Message("user", instruction)]


@lru_cache(maxsize=256)
def json_schema_of(schema: type[BaseModel]) -> Mapping[str, Any]:
    """Return a class's JSON schema without docstrings. It is shared: do not change it.

    The schema is part of prompts and of cache keys, which must not depend on how a class is
    documented. Descriptions of fields are kept: they are written for the model.
    """
    whole = schema.model_json_schema()
    for definition in (whole, *whole.get("$defs", {}).values()):
        definition.pop("description", None)
    return whole


_FENCED = re.compile(r"```(?:json)?(.*?)```", re.DOTALL | re.IGNORECASE)
_OPENING, _CLOSING = re.compile(r"[{[]"), re.compile(r"[}\]]")
_STRING = re.compile(r'"(?:[^"\\]|\\.?)*"?', re.DOTALL)  # the last may be cut
_CUT_WORD = re.compile(r"[\w.+-]+\Z")  # a number or a word that may be longer
_DECODER = json.JSONDecoder()

# Limits that keep parsing fast for any text: the time of a repair grows with the square of the
# brackets, and each brace may begin an object that is incomplete up to the end of the text.
_MOST_BRACKETS = 1000
_DEEPEST = 64
_LONGEST_REPAIRED = 1 << 16
_MOST_REPAIRED = 4
_MOST_ROUNDS = 12
_MOST_READ_IN_VAIN = 1 << 22
_LONGEST_PROBLEM = 500


def parse(text: str, schema: type[T]) -> tuple[T, Literal["parsed", "repaired"]]:
    """Return the first JSON value in the text that the schema accepts, and how it was found.

    A value that the schema does not accept is mended: a list or string that is too long is cut, an
    invalid optional field takes its default, and an invalid item of a list is removed. Of a text
    that is cut off the complete parts are used. What was mended is "repaired". ValueError if there
    is none; the message tells the model what to correct.
    """
    problem = "there is no JSON object in it"
    stages: tuple[tuple[Literal["parsed", "repaired"], Iterator[tuple[Any, bool]]], ...] = (
        ("parsed", _whole_values(text)),
        ("repaired", _broken_values(text)),
    )
    for stage, candidates in stages:
        refused = []
        for value, prose in candidates:
            if prose and not _known(value, schema):
                continue  # prose has braces too, and a repair makes an object of almost any text
            try:
                return schema.model_validate(value), stage
            except ValidationError as error:
                problem = _in_words(error)
                refused.append(value)
        for value in refused[:_MOST_REPAIRED]:
            if _known(value, schema) and (mended := _mend(value, schema)) is not None:
                return mended, "repaired"
    raise ValueError(problem)


def parse_begun(text: str) -> Any:
    """Return the JSON object that is being written, each text in it as far as it goes.

    None if it cannot be read.
    """
    with contextlib.suppress(ValueError):
        return from_json(text[max(0, text.find("{")) :], allow_partial="trailing-strings")
    return None


def _whole_values(text: str) -> Iterator[tuple[Any, bool]]:
    """Yield JSON values, and if prose is around them: the text, what is fenced, the others."""
    for block in [text, *_FENCED.findall(text)]:
        try:
            yield json.loads(block), False
        except (ValueError, RecursionError):
            continue
    for value in islice(_objects(text), _MOST_BRACKETS):
        if value is not None:
            yield value, True


def _broken_values(text: str) -> Iterator[tuple[Any, bool]]:
    """Yield the same of JSON that is cut off, or that a repair can read."""
    for block in [*_FENCED.findall(text)[-_MOST_REPAIRED:][::-1], text]:
        first = _OPENING.search(block)
        if first is None:
            continue
        broken = block[first.start() :].rstrip()
        if len(broken) > _LONGEST_REPAIRED or len(_OPENING.findall(broken)) > _MOST_BRACKETS:
            continue
        bare = _STRING.sub("", broken)
        left_open = len(_OPENING.findall(bare)) - len(_CLOSING.findall(bare))
        with contextlib.suppress(ValueError, TypeError):  # half a surrogate pair is a TypeError
            plain = _CUT_WORD.sub("", _STRING.sub(_escape_string, broken))
            value = from_json(plain, allow_partial=True)
            if left_open > 0:
                _drop_begun(value)
            yield value, True
        end = broken[len(broken.rstrip("}] \t\r\n")) :]  # in a string, if a quote is too many
        closed = bare.endswith(("}", "]")) or len(_CLOSING.findall(end)) >= left_open
        # A repair keeps half an item.
        if (left_open < 2 or closed) and (value := repair_json(broken)) is not None:
            yield value, True


def _escape_string(found: re.Match[str]) -> str:
    """Return a string with its line breaks escaped and no half characters; nothing of a cut one."""
    with contextlib.suppress(ValueError):
        return json.dumps(encodable(json.loads(found[0], strict=False)))
    return found[0] if found.end() < len(found.string) else '"'


def _drop_begun(value: Any) -> None:
    """Remove a list or object at the end of which nothing has arrived yet."""
    if value and isinstance(value, list | dict):
        last = len(value) - 1 if isinstance(value, list) else list(value)[-1]
        _drop_begun(value[last])
        if value[last] in ([], {}):
            del value[last]


_BRACKET = re.compile(r"[][{}]")


def repair_json(text: str) -> Any:
    """Return the value of JSON that is broken or cut off; None if it cannot be read.

    A model that repeats itself nests without end: what is too long, has too many brackets or is
    nested too deeply is cut off there.
    """
    text, depth = text[:_LONGEST_REPAIRED], 0
    for count, bracket in enumerate(_BRACKET.finditer(text)):
        depth = depth + 1 if bracket[0] in "{[" else max(0, depth - 1)
        if depth > _DEEPEST or count >= 2 * _MOST_BRACKETS:
            text = text[: bracket.start()]
            break
    with contextlib.suppress(ValueError, RecursionError):
        return json_repair.loads(text)
    return None


def _mend(value: Any, schema: type[T]) -> T | None:
    """Change a value until the schema accepts it; return None if that is not possible."""
    for _ in range(_MOST_ROUNDS):
        try:
            return schema.model_validate(value)
        except ValidationError as error:
            removed = set()
            for fault in error.errors(include_url=False):
                path, item = _follow(value, fault["loc"])
                longest = fault.get("ctx", {}).get("max_length", sys.maxsize)
                if path and isinstance(item, (list, str)) and len(item) > longest:
                    _follow(value, path[:-1])[1][path[-1]] = _shorten(item, longest)
                else:
                    removed.add(path)
        if () in removed:
            return None
        for path in sorted(removed, reverse=True):  # the last first: lists move up
            _remove(value, path)
    return None


def _follow(value: Any, steps: Sequence[Any]) -> tuple[tuple[Any, ...], Any]:
    """Return how far a path exists in a value, and what is there."""
    path: tuple[Any, ...] = ()
    for step in steps:
        if isinstance(value, dict) and step not in value and steps[-1] in value:
            step = steps[-1]  # a validator has moved it
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            break
        path += (step,)
    return path, value


def _remove(value: Any, path: tuple[Any, ...]) -> None:
    """Remove a field or an item of a list; a list in which nothing is left is removed too."""
    *before, last = path
    with contextlib.suppress(KeyError, IndexError):
        _, parent = _follow(value, before)
        del parent[last]
        if parent == [] and before and isinstance(before[-1], str):
            _remove(value, tuple(before))


def _shorten(item: Any, longest: int) -> Any:
    """Cut a list, or a text between two words."""
    cut = item[:longest]
    return cut.rsplit(None, 1)[0] if isinstance(cut, str) and " " in cut.strip() else cut


def _objects(text: str) -> Iterator[Any]:
    """Yield for each brace the JSON object that begins there, or None; continue after an object."""
    at = 0
    in_vain = 0
    while in_vain < _MOST_READ_IN_VAIN and (at := text.find("{", at)) >= 0:
        try:
            value, at = _DECODER.raw_decode(text, at)
            yield value
        except (ValueError, RecursionError) as error:
            in_vain += getattr(error, "pos", len(text)) - at
            at += 1
            yield None


def _known(candidate: object, schema: type[BaseModel]) -> bool:
    """Whether the candidate has at least one of the schema's fields."""
    if issubclass(schema, RootModel):
        return True
    names = {field.alias or name for name, field in schema.model_fields.items()}
    return isinstance(candidate, dict) and not names.isdisjoint(candidate)


def _in_words(error: ValidationError) -> str:
    faults = [
        f"{'.'.join(str(step) for step in fault['loc']) or 'the object'}: {fault['msg']}"
        for fault in error.errors(include_url=False, include_input=False)[:5]
    ]
    # The place of a fault contains names that the model wrote, of any length.
    return " ".join("; ".join(faults).split())[:_LONGEST_PROBLEM]
