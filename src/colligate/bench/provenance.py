"""What a run was made with: `run.json` in its folder, so that its numbers can be made again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from colligate.bench.suites import Suite, parse_suite
from colligate.errors import ColligateError, MissingPath, UsageError
from colligate.jobs.files import write_whole

FILE = "run.json"

ADAPTER = "adapter"
"""What the record of an adapter begins with, before its name."""

_WITH_STRATEGIES = ("embedder", "reranker", ADAPTER)
_IN_PLACE_OF_NONE = ("worker", "scorer")  # roles that the reader has where nobody else has them
_LINE = 100  # characters of a line that is quoted

T = TypeVar("T")


@dataclass(frozen=True)
class ModelRecord:
    """A model that took part: its name, and what tells its weights apart from others.

    `digest` is the SHA-256 of weights in a file, or the commit of those fetched from a hub; where
    a server holds them it is empty and `said` is what the server says of itself.
    """

    name: str
    digest: str = ""
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Invocation:
    """One time that the command ran: began and ended in UTC, where, and from which commit.

    `ended` is empty where it was killed, or goes on. `arguments` are the command's.
    """

    began: str
    ended: str = ""
    commit: str = ""
    hardware: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Provenance:
    """What a run was made with.

    All but `sessions`, `questions`, `limit`, `datasets` and `strategies` is the same for every
    row: a run goes on only with the same. `datasets` and `strategies` are names of the suite's
    that were asked so far, `questions` how many of each data set, `limit` the number last given
    for it (None, as many as the suite says). `models` are by role, and "embedder", "reranker" and
    "adapter NAME" where they took part. `prompts` are SHA-256 digests of the texts in the source
    that writes prompts, by module. `data` are those of the files of questions and passages, by
    name.
    `versions` are Python's and the packages'.
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
        """The suite as it was when the run began, as far as this version knows its keys."""
        return parse_suite(self.suite_text, self.suite, FILE, strict=False)

    def to_json(self) -> dict[str, Any]:
        """What the file holds."""
        return asdict(self)

    @classmethod
    def from_json(cls, whole: Mapping[str, Any]) -> Provenance:
        """What `to_json` gave; what another version put down beside it is passed over.

        Raises:
            KeyError, TypeError: it is none.
        """
        models = {role: _made(ModelRecord, record) for role, record in whole["models"].items()}
        sessions = tuple(_made(Invocation, session) for session in whole["sessions"])
        names = {name: tuple(whole[name]) for name in ("datasets", "strategies")}
        return _made(cls, {**whole, **names, "models": models, "sessions": sessions})


def _made(kind: type[T], record: Mapping[str, Any]) -> T:
    known = {each.name for each in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in record.items() if name in known})


def read_provenance(directory: Path) -> Provenance:
    """What the run in a folder was made with.

    Raises:
        MissingPath: there is no run there.
        ColligateError: its `run.json` cannot be read.
    """
    file = directory / FILE
    try:
        return Provenance.from_json(json.loads(file.read_text("utf-8")))
    except (FileNotFoundError, NotADirectoryError) as error:
        hint = "colligate bench run --out makes one"
        raise MissingPath(f"{directory} is no run", f"it has no {FILE}", hint) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        why = f"{type(error).__name__}: {error}"
        hint = "put back what stood there, or begin anew in another folder"
        raise ColligateError(f"{file} cannot be read", why, hint) from error


def write_provenance(directory: Path, provenance: Provenance) -> None:
    """Put it down whole: a process killed meanwhile leaves what was there before. Blocks."""
    text = json.dumps(provenance.to_json(), ensure_ascii=False, indent=1)
    write_whole(directory / FILE, [text])


def going_on(before: Provenance, now: Provenance, place: Path) -> Provenance:
    """The run that goes on: what it was begun with, with what is now asked for beside it.

    More questions, data sets and strategies may be asked for; all else must be the same.

    Raises:
        UsageError: something else is not; it is said what.
    """
    if wrong := list(_differences(before, now)):
        raise UsageError(
            f"{place} holds a run made otherwise",
            "; ".join(wrong),
            "take what it was begun with, or name another --out",
        )
    return replace(
        before,
        questions={**before.questions, **now.questions},
        limit=now.limit,
        models={**before.models, **now.models},
        datasets=tuple(dict.fromkeys((*before.datasets, *now.datasets))),
        strategies=tuple(dict.fromkeys((*before.strategies, *now.strategies))),
        prompts={**before.prompts, **now.prompts},
        data={**before.data, **now.data},
        sessions=(*before.sessions, *now.sessions),
    )


def _differences(before: Provenance, now: Provenance) -> Iterator[str]:
    if before.suite != now.suite:
        yield f"the suite was {before.suite} and is {now.suite}"
    elif before.suite_text != now.suite_text:
        where = _first_difference(before.suite_text, now.suite_text)
        yield f"the suite {now.suite} reads otherwise now ({where})"
    if before.seed != now.seed:
        yield f"the seed was {before.seed} and is {now.seed}"
    for dataset, count in before.questions.items():
        if now.questions.get(dataset, count) < count:
            fewer = now.questions[dataset]
            yield f"{count} questions of {dataset} were asked and now {fewer}: they may only grow"
    for role in sorted({*before.models, *now.models}):
        first, second = before.models.get(role), now.models.get(role)
        # What only some strategies need may come and go with them; a role says who was asked.
        if role.partition(" ")[0] in _WITH_STRATEGIES and (first is None or second is None):
            continue
        if first != second:
            nobody = "the reader" if role in _IN_PLACE_OF_NONE else "none"
            was, is_now = (_called(each) if each else nobody for each in (first, second))
            yield f"the {role} was {was} and is {is_now}"
    for name in dict.fromkeys((*before.settings, *now.settings)):
        value, other = before.settings.get(name), now.settings.get(name)
        if value != other:
            yield f"{name} was {value} and is {other}"
    for module, digest in before.prompts.items():
        if now.prompts.get(module, digest) != digest:
            yield f"the prompts of {module} have changed"
    for file, digest in before.data.items():
        if now.data.get(file, digest) != digest:
            yield f"{file} has changed"


def _first_difference(before: str, now: str) -> str:
    """The first line of a suite's file that is not the same."""
    for was, says in zip_longest(before.splitlines(), now.splitlines(), fillvalue=""):
        if was != says:
            return f"it said {was[:_LINE]!r} and says {says[:_LINE]!r}"
    return "at its end"


def _called(model: ModelRecord) -> str:
    said = f" {json.dumps(dict(model.said))}" if model.said else ""
    return f"{model.name}{said}" + (f" ({model.digest[:12]})" if model.digest else "")
