"""The samples that adapters are trained on: one exchange a line, in the form TRL reads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colligate.bench.datasets.records import JsonObject, load_records, record_error
from colligate.jobs.files import json_line, write_whole
from colligate.models import Message

TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"
"""The two files of a folder of samples; no question (or document) is in both."""

_ROLES = ("system", "user", "assistant")


@dataclass(frozen=True)
class Sample:
    """One exchange to learn: the messages of inference, and the reply that is wanted.

    `id` tells it apart from the others of its file and is the same in every run. `task` is the
    step that asks: "router", "scope", "structuring", "selection", "reasoner", "identifier" or
    "summarizer". The last of the messages is the assistant's, and what is to be learnt; those of
    it before are examples that the prompt gives. `meta` is JSON: where it comes from, its class,
    and what an evaluation needs besides.
    """

    id: str
    task: str
    messages: tuple[Message, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if why := _wrong(self.messages):
            raise ValueError(why)

    @property
    def prompt(self) -> tuple[Message, ...]:
        """What the model is asked, as at inference."""
        return self.messages[:-1]

    @property
    def target(self) -> str:
        """The reply that is wanted."""
        return self.messages[-1].content

    def to_json(self) -> dict[str, Any]:
        """The sample as a line of a file holds it."""
        return {
            "messages": [{"role": turn.role, "content": turn.content} for turn in self.messages],
            "id": self.id,
            "task": self.task,
            "meta": dict(self.meta),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Sample:
        """The sample that `to_json` gave; other fields of the record are passed over.

        Raises:
            ValueError: it is none; it says why.
        """
        turns = record.get("messages")
        if not isinstance(turns, list):
            raise ValueError("it has no list of messages")
        meta = record.get("meta", {})
        if not isinstance(meta, dict):
            raise ValueError("its meta is no object")
        return cls(
            id=_text(record, "id"),
            task=_text(record, "task"),
            messages=tuple(map(_turn, turns)),
            meta=meta,
        )


def _text(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"it has no {name}")
    return value


def _turn(turn: Any) -> Message:
    if not isinstance(turn, dict) or turn.get("role") not in _ROLES:
        raise ValueError(f"a message is of none of {', '.join(_ROLES)}")
    if not isinstance(turn.get("content"), str):
        raise ValueError(f"the message of the {turn['role']} has no text")
    return Message(turn["role"], turn["content"])


def _wrong(messages: tuple[Message, ...]) -> str:
    """What keeps these messages from being an exchange to learn; empty if nothing does."""
    if len(messages) < 2:
        return "an exchange has a prompt and a reply"
    if messages[-1].role != "assistant":
        return "its last message is not the assistant's"
    if not messages[-1].content.strip():
        return "its reply is empty"
    return ""


@dataclass(frozen=True)
class CuratedItem:
    """The samples that one question or document gave, with what was left out, and the cost.

    `discarded` says how many samples were left out, by reason; `counts` is what else the data card
    adds up. `usage` is a `UsageReport` as JSON. `error` is why the item failed, kind first; a
    failed item can be tried again.
    """

    samples: tuple[Sample, ...] = ()
    discarded: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @classmethod
    def failed(cls, kind: str, why: str) -> CuratedItem:
        """Return the result of an item that failed."""
        return cls(discarded={kind: 1}, error=f"{kind}: {why}")

    def to_json(self) -> dict[str, Any]:
        """Return the item as the journal holds it."""
        return {
            "samples": [sample.to_json() for sample in self.samples],
            "discarded": dict(self.discarded),
            "counts": dict(self.counts),
            "usage": dict(self.usage),
            "error": self.error,
        }

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> CuratedItem:
        """Return the item that `to_json` gave."""
        return cls(
            samples=tuple(Sample.from_json(sample) for sample in item["samples"]),
            discarded={str(why): int(n) for why, n in item["discarded"].items()},
            counts={str(what): int(n) for what, n in item["counts"].items()},
            usage=dict(item["usage"]),
            error=str(item["error"]),
        )


def read_samples(path: Path, tasks: Collection[str] = ()) -> Iterator[Sample]:
    """The samples of a file in order; of these tasks alone where any are named.

    Raises:
        MissingPath: there is no such file.
        FaultyRecord: a line is no sample, or has an id that came before.
    """
    seen: dict[str, str] = {}
    for place, record in load_records(path):
        sample = _read(path, place, record)
        if sample.id in seen:
            why = f"its id {sample.id!r} came before, in {seen[sample.id]}"
            raise record_error(path, place, why)
        seen[sample.id] = place
        if not tasks or sample.task in tasks:
            yield sample


def _read(path: Path, place: str, record: JsonObject) -> Sample:
    try:
        return Sample.from_json(record)
    except ValueError as error:
        raise record_error(path, place, str(error)) from None


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Put samples into a file, whole or not at all. Blocks."""
    write_whole(path, (json_line(sample.to_json()) for sample in samples))
