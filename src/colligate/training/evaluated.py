"""What an evaluation found: each metric of the base and of adapters, and whether they differ."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from colligate.evaluation.safe_files import write_whole
from colligate.evaluation.significance import Difference, paired_bootstrap
from colligate.training.samples import Sample
from colligate.training.scores import TASKS

REPORT, REPLIES = "report.json", "replies.jsonl"
BASE = "base"


@dataclass(frozen=True)
class Reply:
    """What one side replied to a sample, and what that is worth.

    `side` is "base" or the adapter as it was named. `error` says why there is no reply; it is then
    measured as an empty one.
    """

    sample: Sample
    side: str
    text: str
    values: Mapping[str, float]
    finish_reason: str = "stop"
    error: str = ""
    input_tokens: int = 0
    output_tokens: int = 0

    def to_json(self) -> dict[str, Any]:
        """As a line of `replies.jsonl`."""
        return {
            "id": self.sample.id,
            "task": self.sample.task,
            "side": self.side,
            "reply": self.text,
            "target": self.sample.target,
            "values": {name: value for name, value in self.values.items() if name[0] != "_"},
            "finish_reason": self.finish_reason,
            "error": self.error,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
        }


@dataclass(frozen=True)
class Measure:
    """A metric of a task: the base's value and, where there is one, an adapter's.

    None is the value of a side none of whose replies has what the metric measures. `samples` is
    how many it applies to, on both sides where there are two. `difference` is the adapter's less
    the base's by the paired bootstrap over these; None without an adapter, or for a metric of all
    replies together.
    """

    task: str
    metric: str
    samples: int
    base: float | None
    adapter: str = ""
    adapted: float | None = None
    difference: Difference | None = None

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        found = self.difference
        return {
            "task": self.task,
            "metric": self.metric,
            "samples": self.samples,
            "base": self.base,
            "adapter": self.adapter or None,
            "adapted": self.adapted,
            "difference": found.mean if found else None,
            "low": found.low if found else None,
            "high": found.high if found else None,
            "p": found.p if found and found.enough else None,
            "stars": found.stars if found else "",
        }


@dataclass(frozen=True)
class Report:
    """All measures. `models` names each side's model, `samples` counts those of each task.

    `failed` and `cut` count the replies that failed, or came to their longest, by side. `seed`
    drew the samples, of the file and of the bootstrap.
    """

    models: Mapping[str, str]
    split: str
    samples: Mapping[str, int]
    measures: tuple[Measure, ...]
    failed: Mapping[str, int] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    seed: int = 0
    usage: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "models": dict(self.models),
            "split": self.split,
            "samples": dict(self.samples),
            "measures": [measure.to_json() for measure in self.measures],
            "failed": dict(self.failed),
            "cut": dict(self.cut),
            "seed": self.seed,
            "usage": dict(self.usage),
            "made_with": dict(self.made_with),
        }


def measured(replies: Sequence[Reply], seed: int) -> tuple[Measure, ...]:
    """Every metric of every task, for each adapter beside the base over the same samples."""
    by_task: dict[str, dict[str, dict[str, Reply]]] = {}
    for reply in replies:
        sides = by_task.setdefault(reply.sample.task, {})
        sides.setdefault(reply.side, {})[reply.sample.id] = reply
    return tuple(
        measure
        for task in TASKS
        if task in by_task
        for measure in _of_task(task, by_task[task], seed)
    )


def _of_task(task: str, sides: Mapping[str, Mapping[str, Reply]], seed: int) -> Iterator[Measure]:
    base = sides[BASE]
    alone = _summed(task, base.values())
    adapters = [side for side in sides if side != BASE]
    if not adapters:
        for metric, value in alone.items():
            applies = sum(metric in reply.values for reply in base.values())
            yield Measure(task, metric, applies or len(base), value)
    for adapter in adapters:
        both = [(sides[adapter][id_].values, reply.values) for id_, reply in base.items()]
        adapted = _summed(task, sides[adapter].values())
        for metric in dict.fromkeys((*alone, *adapted)):
            pairs = [
                (ours[metric], theirs[metric])
                for ours, theirs in both
                if metric in ours and metric in theirs
            ]
            yield Measure(
                task,
                metric,
                len(pairs) or len(both),
                alone.get(metric),
                adapter,
                adapted.get(metric),
                paired_bootstrap([a for a, _ in pairs], [b for _, b in pairs], seed)
                if pairs
                else None,
            )


def _summed(task: str, replies: Iterable[Reply]) -> Mapping[str, float]:
    return TASKS[task].summed([reply.values for reply in replies])


def write(out: Path, report: Report, replies: Iterable[Reply]) -> None:
    """Put report and replies into a folder, each whole or not at all. Blocks."""
    lines = (json.dumps(reply.to_json(), ensure_ascii=False) + "\n" for reply in replies)
    write_whole(out / REPLIES, lines)
    write_whole(out / REPORT, [json.dumps(report.to_json(), ensure_ascii=False, indent=1) + "\n"])
