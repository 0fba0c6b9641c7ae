"""Filling: an answer in the shape of a JSON Schema, each value with the quote that it rests on.

Any strategy finds passages; the reader fills all values from them in one call. A value is null if
its quote is in no passage that was shown, lacks its number or date, or contradicts it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from itertools import count
from typing import Annotated, Any, Literal, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model

from colligate.core.answer import Answer, Claim, Form, Place, Value, Verdict
from colligate.core.events import Answered
from colligate.core.prompts import escape
from colligate.core.run import Run, Shown, Task, show_ranked
from colligate.documents import Document, Passage
from colligate.errors import UsageError
from colligate.readers.citing import (
    Placed,
    Quote,
    Statement,
    cite_places,
    judge_claims,
    place_sentence,
)
from colligate.readers.quoting import QuotingReader, ReplyForm, limit_reply

_MOST_VALUES, _DEEPEST = 200, 12
_LONGEST_LABEL = 300  # characters
_TOKENS = 3500  # of the reply
_SEARCHED = 2  # passages for each value, beside those that the question found

_REPLY = """\
Reply with JSON. For each value below give a "quote", words of a passage that say it, copied \
exactly, with the number of its "passage", then the "value" itself. A value that no passage says \
is null, and its quote is empty. A list has one item for each that the passages name, and is \
empty if they name none. The values, by their place in the JSON:
"""

_NUMBER = int | Annotated[float, Field(allow_inf_nan=False)]
_TYPES: Mapping[str, Any] = {"string": str, "integer": int, "number": _NUMBER, "boolean": bool}
# What the model sees of the schema of a value; no more than that is known to be harmless.
_SHOWN = frozenset(
    "type format enum const description pattern minLength maxLength minimum maximum multipleOf"
    " exclusiveMinimum exclusiveMaximum".split()
)
_CHOICES = ("anyOf", "oneOf", "allOf")


class _Found(Quote, json_schema_extra={"required": ["passage", "quote", "value"]}):
    """A value and the words that say it."""

    # A small model that may write null for the whole writes it everywhere.
    quote: str = Field(default="", json_schema_extra={"maxLength": 400})
    value: Any = None


class Shape:
    """What a JSON Schema asks for: the model of the reply, and what each value is, by its place.

    UsageError if it is not the schema of an object, or has what cannot be filled.
    """

    def __init__(self, schema: Mapping[str, Any] | type[BaseModel]) -> None:
        self._schema = schema.model_json_schema() if isinstance(schema, type) else schema
        self._numbers = count(1)
        self.labels: dict[str, str] = {}
        self.reply: Any = self._read(self._schema, "", ())
        if not (self.labels and isinstance(self.reply, type)) or issubclass(self.reply, _Found):
            raise _refusal("", "it must be the schema of an object with properties")

    def _read(self, given: Any, path: str, said: tuple[str, ...]) -> Any:
        """Return the type of the reply to a part of the schema; `said` is what it is, in words."""
        schema = self._resolve(given, path)
        if path.count("/") > _DEEPEST:
            raise _refusal(path, f"it is more than {_DEEPEST} levels deep, or refers to itself")
        if isinstance(schema.get("properties"), Mapping):
            return self._read_object(schema["properties"], path, said)
        if "items" in schema:
            return list[self._read(schema["items"], f"{path}/*", said)]  # type: ignore[misc]
        self.labels[path] = " › ".join(said)[:_LONGEST_LABEL]
        if len(self.labels) > _MOST_VALUES:
            raise _refusal("", f"it has more than {_MOST_VALUES} values")
        shown = WithJsonSchema({k: v for k, v in schema.items() if k in _SHOWN})
        value: Any = Annotated[_type_of(schema, path), shown] | None
        return create_model(f"Value{next(self._numbers)}", __base__=_Found, value=(value, None))

    def _read_object(self, properties: Mapping[str, Any], path: str, said: tuple[str, ...]) -> Any:
        fields: dict[str, Any] = {}
        for at, (name, given) in enumerate(properties.items()):
            place = f"{path}/{_to_pointer(name)}"
            about = self._resolve(given, place).get("description")
            kind = self._read(given, place, (*said, str(about or name)))
            empty = getattr(kind, "__origin__", kind)
            kind = Annotated[kind, BeforeValidator(partial(_or_empty, empty))]
            fields[f"field_{at}"] = (kind, Field(alias=name, title=name, default_factory=empty))
        config = ConfigDict(json_schema_extra={"required": list(properties)})
        return create_model(f"Object{next(self._numbers)}", __config__=config, **fields)

    def _resolve(self, given: Any, path: str) -> Mapping[str, Any]:
        """Return a part of the schema without a reference, and without the choice of null."""
        for _ in range(_DEEPEST):
            if not isinstance(given, Mapping):
                break
            if isinstance(reference := given.get("$ref"), str):
                found = self._find(reference)
            elif choices := [given[name] for name in _CHOICES if isinstance(given.get(name), list)]:
                found = [each for each in choices[0] if each != {"type": "null"}]
                if len(found) != 1:
                    raise _refusal(path, "it allows several kinds of values")
                (found,) = found
            else:
                return given
            if not isinstance(found, Mapping):
                break
            given = {**found, **{k: v for k, v in given.items() if k not in ("$ref", *_CHOICES)}}
        raise _refusal(path, "no schema is there, or its references do not end")

    def _find(self, reference: str) -> Any:
        found: Any = self._schema if reference.startswith("#") else None
        for step in reference.split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found


def _or_empty(empty: type[Any], given: Any) -> Any:
    """Return what a reply has for a part of the schema; null is not offered, and means nothing."""
    return empty() if given is None else given


def _type_of(schema: Mapping[str, Any], path: str) -> Any:
    options = [schema["const"]] if "const" in schema else schema.get("enum")
    if options is not None:
        if isinstance(options, list) and all(isinstance(e, str | int | None) for e in options):
            return Literal[tuple(options)] if options else None
        raise _refusal(path, "only texts and whole numbers can be chosen from")
    given = schema.get("type", [*_TYPES])
    kinds = [kind for kind in (given if isinstance(given, list) else [given]) if kind != "null"]
    if not kinds or not all(isinstance(kind, str) and kind in _TYPES for kind in kinds):
        raise _refusal(path, f"a value is of type {', '.join(_TYPES)}, an object has properties")
    if kinds == ["string"] and schema.get("format") == "date":
        return date
    return Union[tuple(_TYPES[kind] for kind in kinds)]  # noqa: UP007 (they are not known before)


def _refusal(path: str, why: str) -> UsageError:
    where = f" at {path[:80]}" if path else ""
    hint = "the guide says what can be filled"
    return UsageError(f"the schema cannot be filled{where}", why, hint)


def _to_pointer(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


@dataclass(eq=False)
class Leaf:
    """A value of the reply, with its place in the documents, or why no place was found."""

    path: str  # with `*` for an item of a list
    said: _Found
    place: Place | None = None
    problem: str = ""

    @property
    def written(self) -> str:
        """The value as JSON; nothing in it is active where a page shows it as Markdown."""
        value = self.said.value
        text = json.dumps(str(value) if isinstance(value, date) else value, ensure_ascii=False)
        return _quiet(text)


def _quiet(text: str) -> str:
    for active, quiet in (("<", "\\u003c"), ("![", "\\u0021["), ("]:", "]\\u003a")):
        text = text.replace(active, quiet)
    return text


@dataclass(frozen=True)
class Filled:
    """The reply in the shape of a schema: dictionaries, lists and leaves, None without a value."""

    tree: Any
    leaves: Sequence[Leaf]
    shown: Sequence[Shown]
    documents: Mapping[str, Document]


async def fill(question: str, shape: Shape, answer: Answer, run: Run) -> Answer:
    """Return an answer whose text is JSON of the shape, filled from the evidence of `answer`.

    Each value that is left out has a warning. ModelError if the reader gives no reply of this
    shape.
    """
    filled = await find_values(
        question, shape, await _find_passages(question, shape, answer, run), run
    )
    for leaf in filled.leaves:
        if leaf.problem:
            run.warn(f"{leaf.path} is left out: {leaf.problem}")
    return _write_answer(replace(answer, question=question), filled, run)


async def find_values(
    question: str, shape: Shape, shown: Sequence[Shown], run: Run, instruction: str = ""
) -> Filled:
    """Ask the reader once for all values of a shape, and check the quote of each.

    `instruction` comes before the form of the reply in the prompt. ModelError if the reader gives
    no reply of this shape.
    """
    reply = shape.reply()
    if shown:
        lines = [f"- {path}: {escape(label)}" for path, label in shape.labels.items()]
        wanted = ReplyForm(instruction + _REPLY + "\n".join(lines), shape.reply, _TOKENS)
        form = limit_reply(wanted, run)
        reader = QuotingReader({Form.SHORT: form})
        shown, task = await reader.fit(question, shown, run, Task(), form)
        messages = reader.messages(question, shown, task)
        with run.meter.step("answer"):
            reply = (await run.structured(messages, shape.reply, max_tokens=form.tokens)).value
    passages = {number: each.passage for number, each in enumerate(shown, 1)}
    documents = await run.documents_of(list(passages.values()))
    leaves: list[Leaf] = []
    tree = _to_tree(reply, "", leaves)
    placed = await asyncio.to_thread(_place, leaves, passages, documents)
    asked = "" if instruction else question  # a column is no answer to a question
    await _check(asked, shape, dict(zip(leaves, placed, strict=True)), run)
    return Filled(tree, leaves, shown, documents)


async def _find_passages(question: str, shape: Shape, answer: Answer, run: Run) -> list[Shown]:
    """Return the evidence of an answer, then what a search finds for each value, each once."""
    shown = []
    for each in answer.evidence:
        document = await run.document(each.span.document_id)
        shown.append(Shown(document.passage(each.span), each.score, each.reason))
    for path, label in shape.labels.items() if run.embedder is not None else ():
        hits = await run.find(f"{question} {label}", k=_SEARCHED)
        shown += show_ranked(hits, f"of the search for {path}")
    kept: list[Shown] = []
    for one in shown:
        if not any(other.span.contains(one.span) for other in kept):
            kept.append(one)
    return kept


def _to_tree(reply: Any, path: str, leaves: list[Leaf]) -> Any:
    """Return a reply as dictionaries, lists and leaves; each leaf is added to `leaves`."""
    match reply:
        case _Found(value=None):
            return None
        case _Found():
            leaves.append(Leaf(path, reply))
            return leaves[-1]
        case list():
            return [_to_tree(each, f"{path}/*", leaves) for each in reply]
    named = {info.alias: getattr(reply, at) for at, info in type(reply).model_fields.items()}
    return {k: _to_tree(v, f"{path}/{_to_pointer(k)}", leaves) for k, v in named.items()}


def _place(
    leaves: Sequence[Leaf], passages: Mapping[int, Passage], documents: Mapping[str, Document]
) -> list[Placed]:
    """Locate the quote of each value; its numbers and dates must be in there."""
    placed = []
    for leaf in leaves:
        text = str(leaf.said.value)
        said = Statement(passage=leaf.said.passage, quote=leaf.said.quote, sentence=text)
        placed.append(place_sentence(Claim(text, ()), [said], passages, documents))
    return placed


async def _check(question: str, shape: Shape, placed: Mapping[Leaf, Placed], run: Run) -> None:
    """Set the places of the values that hold, and the problems of the others."""
    claims: dict[Leaf, Claim] = {}
    for leaf, each in placed.items():
        if not each.places:
            leaf.problem = "its quote is in no passage"
        elif each.missing:
            leaf.problem = f"its quote does not say {', '.join(each.missing)}"
        else:
            statement = f"{shape.labels[leaf.path]}: {each.claim.statement}"
            claims[leaf] = replace(each.claim, statement=statement, question=question)
    verdicts = await judge_claims(list(claims.values()), run)
    for leaf, claim in claims.items():
        if (verdict := verdicts.get(claim)) is Verdict.CONTRADICTED:
            leaf.problem = f"its quote contradicts “{str(leaf.said.value)[:80]}”"
        else:
            leaf.place = replace(placed[leaf].places[0], meaning=verdict)


def _keep(tree: Any) -> Any:
    """Return a tree with null for what has no place, without items of which nothing is left."""
    match tree:
        case dict():
            return {name: _keep(each) for name, each in tree.items()}
        case list():
            return [kept for kept in map(_keep, tree) if _has_value(kept)]
    return tree if tree is not None and tree.place is not None else None


def _has_value(tree: Any) -> bool:
    inside = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return isinstance(tree, Leaf) or any(map(_has_value, inside))


def _write_answer(answer: Answer, filled: Filled, run: Run) -> Answer:
    text, values, places = "", [], list[tuple[Place, tuple[int, int]]]()
    numbers: dict[Place, int] = {}
    for piece, path, leaf in _write_pieces(_keep(filled.tree), "", "\n"):
        if leaf is not None and leaf.place is not None:
            places.append((leaf.place, (len(text), len(text) + len(piece))))
            number = numbers.setdefault(leaf.place, len(numbers) + 1)
            values.append(Value(path, json.loads(piece), number, leaf.place.meaning))
        text += piece
    citations = cite_places(places, filled.documents)
    spans = tuple(each.span for each in citations)
    run.emit(Answered(bool(spans), text, spans))
    return replace(
        answer,
        text=text,
        found=bool(spans),
        short=None,
        citations=citations,
        evidence=tuple(each.evidence for each in filled.shown),
        probability=None,
        filled=json.loads(text),
        values=tuple(values),
    )


def _write_pieces(tree: Any, path: str, line: str) -> Iterator[tuple[str, str, Leaf | None]]:
    """Yield the JSON of a tree in pieces, each with its path, and its leaf if it is one's value."""
    if isinstance(tree, Leaf) or not tree:
        leaf = tree if isinstance(tree, Leaf) else None
        yield leaf.written if leaf else json.dumps(tree), path, leaf
        return
    named = isinstance(tree, dict)
    before = "{" if named else "["
    for key, each in tree.items() if named else enumerate(tree):
        name = f"{_quiet(json.dumps(key, ensure_ascii=False))}: " if named else ""
        yield f"{before}{line}  {name}", path, None
        yield from _write_pieces(each, f"{path}/{_to_pointer(str(key))}", f"{line}  ")
        before = ","
    yield line + ("}" if named else "]"), path, None
