"""From a model's text to a Pydantic object, in bounded steps.

Decoding held to the schema where the backend can; then always: extract, repair, validate; then
ask again with the error, at most `retries` times. Constrained decoding alone is not enough: a
server may ignore the schema, an answer may be cut.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import json_repair
from pydantic import BaseModel, RootModel, ValidationError

from colligate.errors import ContextTooSmall, MalformedOutput
from colligate.models.protocols import ChatModel, Completion, Message

T = TypeVar("T", bound=BaseModel)

_FENCED = re.compile(r"```(?:json)?\s*\n?(.*?)```", re.DOTALL | re.IGNORECASE)
_DECODER = json.JSONDecoder()


@dataclass(frozen=True)
class Structured(Generic[T]):
    """The object and how it was come by.

    `stages` counts the answers that were `parsed` as they stood, `repaired`, or `asked_again`
    because nothing valid could be made of them.
    """

    value: T
    completions: tuple[Completion, ...]
    stages: Mapping[str, int]
    warnings: tuple[str, ...] = ()


async def structured(
    model: ChatModel,
    messages: Sequence[Message],
    schema: type[T],
    *,
    max_tokens: int,
    retries: int = 2,
    temperature: float = 0.0,
    seed: int | None = None,
) -> Structured[T]:
    """Ask for an object of the Pydantic class `schema`; at most `1 + retries` calls.

    Raises:
        MalformedOutput: none of the answers could be made into one.
        ModelError: what `ChatModel.chat` raises.
    """
    turns = list(messages)
    json_schema = schema.model_json_schema()
    completions: list[Completion] = []
    stages = {"parsed": 0, "repaired": 0, "asked_again": 0}
    problem = ""
    for _ in range(1 + retries):
        try:
            completion = await model.chat(
                turns, max_tokens=max_tokens, temperature=temperature, seed=seed, schema=json_schema
            )
        except ContextTooSmall:
            if not completions:
                raise
            break  # the prompt fits, but not with the failed answer in it
        completions.append(completion)
        try:
            value, stage = parse(completion.text, schema)
        except ValueError as error:
            stages["asked_again"] += 1
            problem = str(error)
            if completion.finish_reason == "length":
                problem = f"it was cut at {max_tokens} tokens; {problem}"
            turns = [*messages, *_ask_again(completion.text, problem)]
            continue
        stages[stage] += 1
        warnings = [warning for each in completions for warning in each.warnings]
        if completion.finish_reason == "length" and stage == "repaired":
            warnings.append(f"{model.name}'s answer was cut at {max_tokens} tokens and mended")
        return Structured(value, tuple(completions), stages, tuple(warnings))
    raise MalformedOutput(
        f"{model.name} gives no valid {schema.__name__}",
        f"{len(completions)} answers, the last: {problem}",
        "use a larger model",
    )


def parse(text: str, schema: type[T]) -> tuple[T, str]:
    """The first JSON value in the text that the schema accepts, and `parsed` or `repaired`.

    Raises:
        ValueError: there is none; the message says why in words a model can use.
    """
    problem = "there is no JSON object in it"
    for stage, candidate in _candidates(text):
        if stage == "repaired" and not _known(candidate, schema):
            continue  # repair finds an object in almost anything
        try:
            return schema.model_validate(candidate), stage
        except ValidationError as error:
            problem = _in_words(error)
    raise ValueError(problem)


def _candidates(text: str) -> Iterator[tuple[str, Any]]:
    """JSON values in the text: whole, fenced, anywhere in it; then what repair makes of it."""
    blocks = [text, *_FENCED.findall(text)]
    for block in blocks:
        try:
            yield "parsed", json.loads(block)
        except (ValueError, RecursionError):
            continue
    at = 0
    while (at := text.find("{", at)) >= 0:
        try:
            value, at = _DECODER.raw_decode(text, at)
            yield "parsed", value
        except (ValueError, RecursionError):
            at += 1
    for block in reversed(blocks):
        start = min((at for mark in "{[" if (at := block.find(mark)) >= 0), default=None)
        if start is not None:
            with contextlib.suppress(ValueError, RecursionError):
                yield "repaired", json_repair.loads(block[start:])


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
    return "; ".join(faults)


def _ask_again(text: str, problem: str) -> list[Message]:
    return [
        Message("assistant", text[:4000] or "(nothing)"),
        Message(
            "user",
            f"That is not valid: {problem}. Answer again with the corrected JSON object only.",
        ),
    ]
