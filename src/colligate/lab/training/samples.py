"""A folder of samples that adapters are trained on: the exchanges, and their data card.

`train.jsonl` and `held_out.jsonl` have one exchange a line, in the form that TRL reads. `card.json`
and `README.md` say what samples there are, where they come from, and how they were made.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

from jinja2 import ChainableUndefined, Environment
from pydantic import Field, TypeAdapter, ValidationError

from colligate.core.events import to_plain
from colligate.errors import MissingPath
from colligate.lab.bench.datasets.records import first_fault, parse_records
from colligate.lab.jobs.files import json_line, write_whole
from colligate.lab.jobs.identity import PROMPTS, flatten
from colligate.models import Message

TRAIN, HELD_OUT = "train.jsonl", "held_out.jsonl"
"""The two files of a folder of samples; no question (or document) is in both."""


@dataclass(frozen=True)
class Sample:
    """One exchange to learn: the messages of inference, and the wanted reply.

    `id` is unique in its file and the same in every run. `task` is the step that asks: "router",
    "scope", "structuring", "selection", "reasoner", "identifier", "summarizer" or "reading". The
    last message is the assistant's and is learnt; earlier ones of it are examples in the prompt.
    `meta` is JSON: the sample's origin, its class, and what an evaluation needs in addition.
    """

    id: Annotated[str, Field(min_length=1)]
    task: Annotated[str, Field(min_length=1)]
    messages: tuple[Message, ...]
    meta: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.messages) < 2:
            raise ValueError("an exchange has a prompt and a reply")
        if self.messages[-1].role != "assistant":
            raise ValueError("its last message is not the assistant's")
        if not self.messages[-1].content.strip():
            raise ValueError("its reply is empty")

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The messages that the model gets, as at inference."""
        return self.messages[:-1]

    @property
    def target(self) -> str:
        """The wanted reply."""
        return self.messages[-1].content

    def to_json(self) -> dict[str, Any]:
        """Return the sample as a line of a file holds it."""
        return {
            "messages": [{"role": turn.role, "content": turn.content} for turn in self.messages],
            "id": self.id,
            "task": self.task,
            "meta": dict(self.meta),
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Sample:
        """Parse a line, ignoring unknown fields; ValueError says what is wrong with it."""
        try:
            return _SAMPLE.validate_python(record)
        except ValidationError as error:
            raise ValueError(first_fault(error)) from None


_SAMPLE = TypeAdapter(Sample)


def read_samples(path: Path, tasks: Collection[str] = ()) -> Iterator[Sample]:
    """Yield the samples of a file, of these tasks if any; FaultyRecord if one is wrong or twice."""
    seen: set[str] = set()

    def parse(record: Mapping[str, Any]) -> Sample:
        sample = Sample.from_json(record)
        if sample.id in seen:
            raise ValueError(f"its id {sample.id!r} came before")
        seen.add(sample.id)
        return sample

    return (each for each in parse_records(path, parse) if not tasks or each.task in tasks)


def write_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Write samples to a file, all or none. Blocks."""
    write_whole(path, (json_line(sample.to_json()) for sample in samples))


def require_train_file(folder: Path) -> None:
    """Raise MissingPath if a folder has no samples to train on."""
    if not (folder / TRAIN).is_file():
        hint = "name a folder that colligate train curate made"
        raise MissingPath(f"there is no {folder / TRAIN}", "", hint)


@dataclass
class CuratedItem:
    """The samples of one question or document, with what was left out, and the cost.

    `discarded` counts the samples that were left out, by reason. `usage` is a `UsageReport` as
    JSON. `error` is why the item failed, kind first; a failed item can be tried again.
    """

    samples: list[Sample] = field(default_factory=list)
    discarded: Counter[str] = field(default_factory=Counter)
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""

    @classmethod
    def without(cls, reason: str) -> CuratedItem:
        """Return an item whose one sample was left out."""
        return cls(discarded=Counter([reason]))

    @classmethod
    def failed(cls, kind: str, why: str) -> CuratedItem:
        """Return the result of an item that failed."""
        return cls(discarded=Counter([kind]), error=f"{kind}: {why}")

    def take(self, item: CuratedItem, task: str) -> None:
        """Add what was made for a task, whose name goes before whatever is counted."""
        self.samples += item.samples
        self.discarded.update({f"{task}: {what}": n for what, n in item.discarded.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the item as the journal holds it."""
        return {**vars(self), "samples": [sample.to_json() for sample in self.samples]}

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> CuratedItem:
        """Parse what `to_json` returned."""
        return _ITEM.validate_python(item)


_ITEM = TypeAdapter(CuratedItem)


CARD_FILE, README_FILE = "card.json", "README.md"
SPLITS = ("train", "held_out")

BySplit = Mapping[str, int]
"""How many samples, by split."""


@dataclass(frozen=True)
class Card:
    """What a folder of samples holds, and how it was made.

    `items` counts the questions or documents that were asked for, are done, failed. `samples` are
    by task, `classes` by task and class. `discarded` counts what was left out, by reason.
    `made_with` has teacher, settings, and digests of sources and prompts. `split` says how
    questions were kept apart. `usage` is the cost of the calls, without those of failed items.
    `files` are digests.
    """

    system: str
    items: Mapping[str, int]
    samples: Mapping[str, BySplit]
    classes: Mapping[str, Mapping[str, BySplit]] = field(default_factory=dict)
    discarded: Mapping[str, int] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)
    made_with: Mapping[str, Any] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    sessions: tuple[Mapping[str, Any], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything that was asked for is done."""
        return self.items["done"] == self.items["asked"]

    def total(self, split: str) -> int:
        """Return how many samples a split has."""
        return sum(of_task[split] for of_task in self.samples.values())

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Return task, class, and the samples to train on and held out: a line of a table each."""
        return [
            (task, name, f"{of_class['train']:,}", f"{of_class['held_out']:,}")
            for task, found in self.samples.items()
            for name, of_class in {"all": found, **self.classes.get(task, {})}.items()
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the card for programs."""
        return {**to_plain(self), "complete": self.complete}

    def markdown(self) -> str:
        """Return the card for people, with a head that `datasets.load_dataset` reads."""
        environment = Environment(undefined=ChainableUndefined, trim_blocks=True)
        environment.filters["cell"] = _format_cell
        template = resources.files(__package__).joinpath("templates", "card.md.j2")
        made_with = {what: each for what, each in self.made_with.items() if what != PROMPTS}
        said = [(what, each) for what, each in flatten(made_with) if each not in ("", None, [], ())]
        text = environment.from_string(template.read_text("utf-8")).render(
            card=self,
            files=zip(SPLITS, (TRAIN, HELD_OUT), strict=True),
            made_with=[*self.sources.items(), *said],
        )
        return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def count_samples(
    made: Iterable[CuratedItem], splits: Mapping[str, Sequence[Sample]]
) -> dict[str, Mapping[str, Any]]:
    """Return the fields of a card that are sums, from the items and from the samples by split."""
    samples: dict[str, dict[str, int]] = {}
    classes: dict[str, dict[str, dict[str, int]]] = {}
    for split, of_split in splits.items():
        for sample in of_split:
            rows = [samples.setdefault(sample.task, dict.fromkeys(SPLITS, 0))]
            if name := str(sample.meta.get("class", "")):
                of_task = classes.setdefault(sample.task, {})
                rows.append(of_task.setdefault(name, dict.fromkeys(SPLITS, 0)))
            for row in rows:
                row[split] += 1
    made = list(made)
    discarded = Counter(reason for each in made for reason in each.discarded.elements())
    usages = [each.usage for each in made]
    tokens = ("calls", "input_tokens", "output_tokens")
    dollars = [usage.get("cost_usd", 0.0) for usage in usages]
    return {
        "samples": samples,
        "classes": {task: dict(sorted(of_task.items())) for task, of_task in classes.items()},
        "discarded": dict(discarded.most_common()),
        "usage": {
            **{name: sum(usage.get(name, 0) for usage in usages) for name in tokens},
            # unknown as soon as one price is
            "cost_usd": None if None in dollars else round(sum(dollars), 6),
        },
    }


def write_card(folder: Path, card: Card) -> None:
    """Write the card, for programs and for people. Blocks."""
    text = json.dumps(card.to_json(), ensure_ascii=False, indent=1)
    write_whole(folder / CARD_FILE, [text])
    write_whole(folder / README_FILE, [card.markdown()])


def _format_cell(value: Any) -> str:
    """Return a cell of a table, or a piece of code, in one line that nothing in it ends."""
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")
