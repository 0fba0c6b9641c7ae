"""The record of what a run was made with (`run.json`), so that its numbers can be reproduced."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from colligate.lab.bench.suites import Suite, parse_suite
from colligate.lab.jobs.identity import (
    ADAPTER,
    ModelRecord,
    list_differences,
    prompt_differences,
    resume_error,
)
from colligate.lab.jobs.job import Invocation, RecordFile

CHECK = "check of"
_WITH_STRATEGIES = ("embedder", "reranker", CHECK, ADAPTER)
_READER_BY_DEFAULT = ("worker", "scorer")  # roles that the reader takes if no model is named
_LINE = 100  # characters of a line that an error quotes


@dataclass(frozen=True)
class Provenance:
    """The record of what a run was made with.

    All but `sessions`, `questions`, `limit`, `datasets` and `strategies` is the same for every
    row: a run is resumed only with the same. `datasets` and `strategies` are names of the suite's
    that were asked so far, `questions` how many of each data set, `limit` the number last given
    for it (None, as many as the suite says). `models` are by role, and "embedder", "reranker",
    "check of READER" and "adapter NAME" if they took part. `prompts` are `prompt_digests`, `data`
    the SHA-256 digests of the files of questions and passages, by name. `versions` are Python's
    and the packages'.
    """

    suite: str
    suite_text: str
    seed: int
    models: Mapping[str, ModelRecord]
    datasets: tuple[str, ...]
    strategies: tuple[str, ...]
    questions: Mapping[str, int] = field(default_factory=dict)
    limit: int | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    prompts: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    sessions: tuple[Invocation, ...] = ()

    @property
    def began(self) -> str:
        """When the first row was begun, in UTC."""
        return self.sessions[0].began if self.sessions else ""

    def parsed_suite(self) -> Suite:
        """Return the suite as it was when the run began, as far as this version knows its keys."""
        return parse_suite(self.suite_text, self.suite, RUN.name, strict=False)

    def resume(self, now: Provenance, folder: Path) -> Provenance:
        """Return the record of this run, resumed with what is asked for now.

        More questions, data sets and strategies may be asked for; all else must be the same.
        """
        if wrong := list(_find_differences(self, now)):
            raise resume_error(folder, wrong)
        return replace(
            self,
            questions={**self.questions, **now.questions},
            limit=now.limit,
            models={**self.models, **now.models},
            datasets=tuple(dict.fromkeys((*self.datasets, *now.datasets))),
            strategies=tuple(dict.fromkeys((*self.strategies, *now.strategies))),
            prompts={**self.prompts, **now.prompts},
            data={**self.data, **now.data},
        )


RUN = RecordFile("run.json", Provenance, "a run", "colligate bench run --out")


def read_provenance(folder: Path) -> Provenance:
    """Read what the run in a folder was made with. Blocks."""
    return RUN.read(folder)


def _find_differences(before: Provenance, now: Provenance) -> Iterator[str]:
    yield from list_differences(
        *({"the suite": of.suite, "the seed": of.seed, **of.settings} for of in (before, now))
    )
    if before.suite == now.suite and before.suite_text != now.suite_text:
        where = _find_first_difference(before.suite_text, now.suite_text)
        yield f"the text of the suite {now.suite} has changed ({where})"
    for dataset, count in before.questions.items():
        if (fewer := now.questions.get(dataset, count)) < count:
            yield f"{count} questions of {dataset} were asked and now {fewer}: they may only grow"
    for role in sorted({*before.models, *now.models}):
        first, second = before.models.get(role), now.models.get(role)
        # Models that only some strategies need may come and go with them; roles may not.
        if first != second and ((first and second) or not role.startswith(_WITH_STRATEGIES)):
            nobody = "the reader" if role in _READER_BY_DEFAULT else "none"
            was, is_now = (_describe_model(each) if each else nobody for each in (first, second))
            yield f"the {role} was {was} and is {is_now}"
    yield from prompt_differences(before.prompts, now.prompts, partial=True)
    changed = (file for file in before.data if before.data[file] != now.data.get(file))
    yield from (f"{file} has changed" for file in changed if file in now.data)


def _find_first_difference(before: str, now: str) -> str:
    """Describe the first line of a suite's file that differs."""
    for was, is_now in zip_longest(before.splitlines(), now.splitlines(), fillvalue=""):
        if was != is_now:
            return f"a line was {was[:_LINE]!r} and is {is_now[:_LINE]!r}"
    return "at its end"


def _describe_model(model: ModelRecord) -> str:
    said = f" {json.dumps(dict(model.said))}" if model.said else ""
    return f"{model.name}{said}" + (f" ({model.digest[:12]})" if model.digest else "")
