"""The record of what a run was made with (`run.json`), so that its numbers can be reproduced."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from colligate.lab.bench.suites import Suite, parse_suite
from colligate.lab.jobs import identity
from colligate.lab.jobs.job import Invocation, RecordFile

CHECK = "check of"
_WITH_STRATEGIES = ("embedder", "reranker", CHECK, identity.ADAPTER)


@dataclass(frozen=True)
class Provenance:
    """The record of what a run was made with; it is resumed only with the same.

    `datasets` and `strategies` are names of the suite's that were asked so far, `questions` how
    many of each data set, `limit` the number last given for it: these may grow. `models` are by
    role, and "embedder", "reranker", "check of READER" and "adapter NAME" if they took part.
    `prompts` are `prompt_digests`, `data` the SHA-256 digests of the files of questions and
    passages, by name. `versions` are Python's and the packages'.
    """

    suite: str
    suite_text: str
    seed: int
    models: Mapping[str, identity.ModelRecord]
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
        """Return this record with what is asked for now: more may be, all else must be the same."""
        if wrong := list(_find_differences(self, now)):
            raise identity.resume_error(folder, wrong)
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


def _find_differences(before: Provenance, now: Provenance) -> Iterator[str]:
    both = [file for file in before.data if file in now.data]
    yield from identity.list_differences(
        *(
            {
                "the suite": of.suite,
                "the text of the suite": sha256(of.suite_text.encode()).hexdigest(),
                "the seed": of.seed,
                **of.settings,
                **{file: of.data[file] for file in both},
            }
            for of in (before, now)
        )
    )
    for dataset, count in before.questions.items():
        if (fewer := now.questions.get(dataset, count)) < count:
            yield f"{count} questions of {dataset} were asked and now {fewer}: they may only grow"
    for role in sorted({*before.models, *now.models}):
        first, second = before.models.get(role), now.models.get(role)
        # Models that only some strategies need may come and go with them; roles may not.
        if first != second and ((first and second) or not role.startswith(_WITH_STRATEGIES)):
            was, is_now = (
                f"{each.name}{each.digest and f' ({each.digest[:12]})'}" if each else "none"
                for each in (first, second)
            )
            yield f"the {role} was {was} and is {is_now}"
    yield from identity.prompt_differences(before.prompts, now.prompts, partial=True)
