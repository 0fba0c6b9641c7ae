"""The data card: what samples there are, where they come from, and how they were made."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from colligate.core.events import to_plain
from colligate.errors import ColligateError, MissingPath
from colligate.jobs.files import write_whole
from colligate.training.samples import HELD_OUT, TRAIN, CuratedItem, Sample

FILE = "card.json"
README = "README.md"

SPLITS = ("train", "held_out")

BySplit = Mapping[str, int]
"""How many samples, by split."""


@dataclass(frozen=True)
class Card:
    """What a folder of samples holds.

    `items` are the questions or documents: how many were asked for, are done, failed. `samples`
    are by task, `classes` by task and class. `discarded` says how many samples were left out, by
    reason, and `counts` what else was counted. `filters` are sentences: what was left out or
    mended, and why. `made_with` is what all of it was made with: teacher, settings, digests of
    sources and prompts. `split` says how questions were kept apart. `usage` is what the calls
    cost, but for those of items that failed. `files` are digests, `sessions` the times that the
    command ran.
    """

    system: str
    items: Mapping[str, int]
    samples: Mapping[str, BySplit]
    classes: Mapping[str, Mapping[str, BySplit]] = field(default_factory=dict)
    discarded: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    filters: tuple[str, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    made_with: Mapping[str, Any] = field(default_factory=dict)
    split: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    sessions: tuple[Mapping[str, Any], ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all that was asked for is done."""
        return self.items["done"] == self.items["asked"]

    def total(self, split: str) -> int:
        """The samples of a split."""
        return sum(of_task[split] for of_task in self.samples.values())

    def to_json(self) -> dict[str, Any]:
        """The card for programs."""
        return {**to_plain(self), "complete": self.complete}

    @classmethod
    def from_json(cls, card: Mapping[str, Any]) -> Card:
        """The card that `to_json` gave.

        Raises:
            KeyError, TypeError: it is none.
        """
        known = {each.name: card[each.name] for each in fields(cls) if each.name in card}
        several = {name: tuple(card.get(name, ())) for name in ("filters", "sessions")}
        return cls(**{**known, **several})

    def markdown(self) -> str:
        """The card for people, with a head that `datasets.load_dataset` reads."""
        return "\n".join(_page(self)) + "\n"


def summed(
    made: Iterable[CuratedItem], splits: Mapping[str, Sequence[Sample]]
) -> dict[str, Mapping[str, Any]]:
    """The fields of a card that are sums, of what was made and of the samples by split."""
    samples: defaultdict[str, Counter[str]] = defaultdict(Counter)
    classes: defaultdict[str, defaultdict[str, Counter[str]]] = defaultdict(
        lambda: defaultdict(Counter)
    )
    for split, of_split in splits.items():
        for sample in of_split:
            samples[sample.task][split] += 1
            if "class" in sample.meta:
                classes[sample.task][str(sample.meta["class"])][split] += 1
    discarded: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    usages = []
    for each in made:
        discarded.update(each.discarded)
        counts.update(each.counts)
        usages.append(each.usage)
    return {
        "samples": {task: _of_splits(found) for task, found in samples.items()},
        "classes": {
            task: {name: _of_splits(found) for name, found in sorted(of_task.items())}
            for task, of_task in classes.items()
        },
        "discarded": dict(discarded.most_common()),
        "counts": dict(sorted(counts.items())),
        "usage": _cost(usages),
    }


def _of_splits(found: Mapping[str, int]) -> BySplit:
    return {split: found.get(split, 0) for split in SPLITS}


def _cost(usages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """All usages together; the dollars are None where a price is not known."""
    whole: dict[str, Any] = {
        name: sum(usage.get(name, 0) for usage in usages)
        for name in ("calls", "input_tokens", "output_tokens")
    }
    dollars = [usage.get("cost_usd", 0.0) for usage in usages]
    whole["cost_usd"] = None if None in dollars else round(sum(dollars), 6)
    return whole


def write_card(folder: Path, card: Card) -> None:
    """Put the card down, for programs and for people. Blocks."""
    text = json.dumps(card.to_json(), ensure_ascii=False, indent=1) + "\n"
    for name, content in ((FILE, text), (README, card.markdown())):
        write_whole(folder / name, [content])


def read_card(folder: Path) -> Card:
    """The card of a folder of samples.

    Raises:
        MissingPath: there is none.
        ColligateError: it cannot be read.
    """
    file = folder / FILE
    try:
        return Card.from_json(json.loads(file.read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "colligate train curate --out makes one"
        raise MissingPath(f"{folder} holds no samples", f"it has no {FILE}", hint) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        hint = "the same curation, run again, writes it anew"
        raise ColligateError(f"{file} cannot be read", why, hint) from error


def _page(card: Card) -> Iterable[str]:
    yield from ("---", "configs:", "- config_name: default", "  data_files:")
    for split, file in zip(SPLITS, (TRAIN, HELD_OUT), strict=True):
        if card.total(split):  # a loader takes an empty file for a fault
            yield from (f"  - split: {split}", f"    path: {file}")
    yield from ("---", "", f"# Samples for {card.system}", "")
    items = card.items
    yield (
        f"{card.total('train'):,} samples to train on and {card.total('held_out'):,} held out, of "
        f"{items['done']:,} of {items['asked']:,} items; {items['failed']:,} failed."
    )
    if not card.complete:
        yield "**Unfinished**: the same command goes on."
    yield ""
    yield "Each line is one exchange in the `messages` form; its last message is to be learnt."
    yield "The texts are their sources', whose licences hold for them here."
    yield from ("", "## Samples", "")
    rows = []
    for task, found in card.samples.items():
        rows.append((task, "all", found))
        rows += [(task, name, of_class) for name, of_class in card.classes.get(task, {}).items()]
    yield from _table(
        ("task", "class", "train", "held out"),
        [(task, name, f"{n['train']:,}", f"{n['held_out']:,}") for task, name, n in rows],
    )
    yield from ("", "## Left out", "")
    yield from _table(("reason", "samples"), _numbers(card.discarded)) if card.discarded else ["-"]
    if card.counts:
        yield from ("", "## Counted on the way", "")
        yield from _table(("what", "how many"), _numbers(card.counts))
    yield from ("", "## How they were made", "")
    yield from (f"- {sentence}" for sentence in card.filters)
    yield from (f"- {what}: {value}" for what, value in card.split.items())
    yield from ("", "## CuratedItem with", "")
    yield from _table(("what", "value"), [*card.sources.items(), *_flat(card.made_with)])
    yield from ("", "## Cost", "")
    dollars = card.usage.get("cost_usd")
    yield (
        f"{card.usage.get('calls', 0):,} calls, {card.usage.get('input_tokens', 0):,} tokens in, "
        f"{card.usage.get('output_tokens', 0):,} out, "
        + ("of unknown price" if dollars is None else f"{dollars:.4f} US dollars")
        + "; what failed is not counted."
    )
    yield from ("", "## Commands", "")
    for session in card.sessions:
        said = json.dumps(session.get("arguments", {}), ensure_ascii=False)
        yield f"- {session.get('began', '')}: `{_bare(said)}`"
    yield from ("", "Versions: " + ", ".join(f"{name} {v}" for name, v in card.versions.items()))


def _numbers(counts: Mapping[str, int]) -> list[tuple[str, str]]:
    return [(what, f"{count:,}") for what, count in counts.items()]


def _flat(value: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for name, inner in value.items():
        if name == "prompts":  # many digests, which card.json has
            continue
        if isinstance(inner, Mapping):
            found += _flat(inner, f"{prefix}{name}: ")
        elif inner not in ("", None, [], ()):
            found.append((f"{prefix}{name}", str(inner)))
    return found


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield _row(head)
    yield _row(["---"] * len(head))
    yield from map(_row, rows)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_bare(cell).replace("|", "\\|") for cell in cells) + " |"


def _bare(text: str) -> str:
    """On one line, without what would end a piece of code."""
    return " ".join(text.split()).replace("`", "'")
