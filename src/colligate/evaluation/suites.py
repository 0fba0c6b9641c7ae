"""Suites: what is asked of which strategies, and the table that comes of it. A suite is a file.

Those of the papers' tables stand beside this module, in `suites/NAME.toml`; a file of one's own
is named by its path. docs/bench.md says what stands in one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

from colligate.errors import UsageError
from colligate.models.suggest import closest

Over = Literal["candidates", "corpus", "documents"]
PictureKind = Literal["recall-at-k", "by-gold-position", "pareto", "attention-by-position"]

T = TypeVar("T")

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Dataset:
    """Questions, and what they are asked over.

    `file` and `corpus` are paths below the folder of data, or absolute. `over`: the documents
    that come with each question ("candidates"), the whole `corpus`, or whole documents that the
    question names and the corpus holds ("documents"). `metrics` are names of groups
    (docs/metrics.md). `questions` is how many are asked unless told otherwise; None is all.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: str
    file: str
    format: str = "auto"
    over: Over = "candidates"
    corpus: str | None = None
    metrics: tuple[str, ...] = ("short", "evidence", "cost")
    questions: int | None = None


@dataclass(frozen=True)
class Method:
    """A strategy as the suite asks it: its registered name, and its parameters as `--set` has them.

    `name` tells it apart from the others of the suite, `label` is its name in the table. One that
    is not `default` runs only when it is named.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: str
    strategy: str = ""
    set: tuple[str, ...] = ()
    label: str = ""
    default: bool = True


@dataclass(frozen=True)
class Column:
    """A column of the table as printed: a metric of a data set, multiplied by `scale`."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    dataset: str
    metric: str
    label: str = ""
    scale: float = 1.0


@dataclass(frozen=True)
class Published:
    """A number that the paper itself printed, as printed: `row` is its row's name there.

    `row` is the label of one of the suite's strategies where there is one for it.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    row: str
    dataset: str
    metric: str
    value: float
    model: str = ""
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A picture that belongs in the report, of one data set and metric where it names them."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    kind: PictureKind
    dataset: str = ""
    metric: str = ""
    label: str = ""


@dataclass(frozen=True)
class Suite:
    """A table of a paper, or one of your own. `text` is its file, as it was read."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    title: str
    datasets: tuple[Dataset, ...]
    strategies: tuple[Method, ...]
    columns: tuple[Column, ...] = ()
    published: tuple[Published, ...] = ()
    pictures: tuple[Picture, ...] = ()
    paper: str = ""
    about: str = ""
    name: str = ""
    text: str = ""

    def dataset(self, name: str) -> Dataset:
        """The data set of a name.

        Raises:
            UsageError: there is none.
        """
        return _named("data set", name, {each.name: each for each in self.datasets}, self.name)

    def method(self, name: str) -> Method:
        """The strategy of a name.

        Raises:
            UsageError: there is none.
        """
        return _named("strategy", name, {each.name: each for each in self.strategies}, self.name)


def read_suite(name: str) -> Suite:
    """The suite of a name (`names`), or the one in a file of one's own.

    Raises:
        UsageError: there is none, or its file says something that it cannot mean.
    """
    if name in names():
        text = _folder().joinpath(f"{name}.toml").read_text("utf-8")
        return parse_suite(text, name, f"{name}.toml")
    file = Path(name)
    if file.suffix != ".toml":
        near = closest(name, names())
        mend = f"did you mean {near}?" if near else "colligate bench suites lists them"
        raise UsageError(
            f"there is no suite {name!r}", "", f"{mend}; a file of yours ends in .toml"
        )
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot read the suite {file}", why) from error
    return parse_suite(text, file.stem, str(file))


@cache
def names() -> tuple[str, ...]:
    """The suites that come with colligate."""
    found = (each.name for each in _folder().iterdir() if each.name.endswith(".toml"))
    return tuple(sorted(name.removesuffix(".toml") for name in found))


def parse_suite(text: str, name: str, file: str) -> Suite:
    """The suite that a TOML file says; errors name the file and the key.

    Raises:
        UsageError: the file says something that it cannot mean.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is no TOML", str(error)) from error
    for key in ("name", "text"):
        if key in table:
            raise UsageError(f"{file}: {key}", "there is no such key", "the file's name is its own")
    try:
        suite = _SUITE.validate_python(table)
    except ValidationError as error:
        raise UsageError(*_said(file, error)) from error
    return checked(_complete(suite, name, text), file)


def _complete(suite: Suite, name: str, text: str) -> Suite:
    """With the names that a file may leave out."""
    strategies = [
        replace(each, strategy=each.strategy or each.name, label=each.label or each.name)
        for each in suite.strategies
    ]
    columns = [replace(each, label=each.label or each.metric) for each in suite.columns]
    return replace(
        suite, name=name, text=text, strategies=tuple(strategies), columns=tuple(columns)
    )


def checked(suite: Suite, file: str) -> Suite:
    """The same suite, whose parts fit each other.

    Raises:
        UsageError: a name that comes twice, or that nothing has.
    """

    def wrong(key: str, why: str, mend: str = "") -> UsageError:
        return UsageError(f"{file}: {key}", why, mend)

    for what, parts in (("datasets", suite.datasets), ("strategies", suite.strategies)):
        if not parts:
            raise wrong(what, "there are none", f"write a [[{what}]]")
        if twice := _twice(part.name for part in parts):
            raise wrong(f"{what}.name", f"{twice!r} comes twice")
    known = [each.name for each in suite.datasets]
    named = [
        *(("columns", number, each.dataset) for number, each in enumerate(suite.columns, 1)),
        *(("published", number, each.dataset) for number, each in enumerate(suite.published, 1)),
        *(("pictures", number, each.dataset) for number, each in enumerate(suite.pictures, 1)),
    ]
    for what, number, dataset in named:
        if dataset not in known and (dataset or what != "pictures"):
            there = f"there are {', '.join(known)}"
            raise wrong(f"{what}.{number}.dataset", f"no data set {dataset!r}", there)
    for each in suite.datasets:
        if each.over != "candidates" and each.corpus is None:
            why = f"{each.name} is asked over its {each.over}, and names no corpus"
            raise wrong("datasets.corpus", why, 'write corpus = "FILE"')
        if each.questions is not None and each.questions < 1:
            raise wrong("datasets.questions", f"{each.name} would be asked nothing")
    return suite


def _twice(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _said(file: str, error: ValidationError) -> tuple[str, str, str]:
    """The first thing that is wrong: file and key, why, and the mend."""
    first = error.errors()[0]
    where = [str(part + 1) if isinstance(part, int) else str(part) for part in first["loc"]]
    key = ".".join(where)
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _KEYS.get(where[0] if len(where) > 1 else "", ())
        near = closest(where[-1], known)
        mend = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        return f"{file}: {key}", "there is no such key", mend
    return f"{file}: {key}", first["msg"][0].lower() + first["msg"][1:], ""


def _named(what: str, name: str, known: Mapping[str, T], suite: str) -> T:
    if name not in known:
        near = closest(name, list(known))
        mend = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"{suite} has no {what} {name!r}", "", mend)
    return known[name]


def _folder() -> Any:
    return resources.files(__package__).joinpath("suites")


_SUITE = TypeAdapter(Suite)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "": tuple(f for f in Suite.__dataclass_fields__ if f not in ("name", "text")),
    "datasets": tuple(Dataset.__dataclass_fields__),
    "strategies": tuple(Method.__dataclass_fields__),
    "columns": tuple(Column.__dataclass_fields__),
    "published": tuple(Published.__dataclass_fields__),
    "pictures": tuple(Picture.__dataclass_fields__),
}
