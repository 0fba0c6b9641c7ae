"""What a suite is made of: data sets, strategies, the table that comes of them, its pictures."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from colligate.errors import UsageError, closest

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
    (docs/metrics.md), those in `optional` are taken where the model they ask is given.
    `questions` is how many are asked unless told otherwise; None is all. `where` leaves those
    whose `meta` has these values. One that is not `default` is asked only when it is named.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: str
    file: str
    format: str = "auto"
    over: Over = "candidates"
    corpus: str | None = None
    metrics: tuple[str, ...] = ("short", "evidence", "cost")
    optional: tuple[str, ...] = ()
    questions: int | None = None
    where: Mapping[str, str | int | bool] = field(default_factory=dict)
    default: bool = True


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
class Group:
    """Data sets under one name: a value of the group is the mean of theirs, each weighing alike."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    name: str
    datasets: tuple[str, ...]


@dataclass(frozen=True)
class Column:
    """A column of the table as printed: a metric of a data set or group, multiplied by `scale`.

    The first one is what the table is about.
    """

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT

    dataset: str
    metric: str
    label: str = ""
    scale: float = 1.0


@dataclass(frozen=True)
class Published:
    """A number that the paper itself printed, as printed: `row` is its row's name there.

    `row` is the label of one of the suite's strategies where there is one for it. In a file a
    printed line may be given at once: `values`, one for each column, "-" where there is none.
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
    groups: tuple[Group, ...] = ()
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

    def columns_of(self, dataset: str) -> list[Column]:
        """The columns of one data set."""
        return [column for column in self.columns if column.dataset == dataset]

    def method(self, name: str) -> Method:
        """The strategy of a name.

        Raises:
            UsageError: there is none.
        """
        return _named("strategy", name, {each.name: each for each in self.strategies}, self.name)


def _named(what: str, name: str, known: Mapping[str, T], suite: str) -> T:
    if name not in known:
        near = closest(name, list(known))
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"{suite} has no {what} {name!r}", "", hint)
    return known[name]


# Suites: what is asked of which strategies, and the table that comes of it. A suite is a file.
#
# Those of the papers' tables stand beside this module, in `suites/NAME.toml`; a file of one's own
# is named by its path. docs/bench.md says what stands in one.

__all__ = [
    "Column",
    "Dataset",
    "Group",
    "Method",
    "Picture",
    "PictureKind",
    "Published",
    "Suite",
    "checked",
    "names",
    "parse_suite",
    "read_suite",
]


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
        hint = f"did you mean {near}?" if near else "colligate bench suites lists them"
        raise UsageError(
            f"there is no suite {name!r}", "", f"{hint}; a file of yours ends in .toml"
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


def parse_suite(text: str, name: str, file: str, *, strict: bool = True) -> Suite:
    """The suite that a TOML file says; errors name the file and the key.

    Without `strict` keys that mean nothing here are passed over: another version wrote them.

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
        suite = _SUITE.validate_python(_spelt_out(table if strict else _known(table), file))
    except ValidationError as error:
        raise UsageError(*_said(file, error)) from error
    return checked(_complete(suite, name, text), file)


def _known(table: Mapping[str, Any]) -> Mapping[str, Any]:
    """Without the keys that no part of a suite has, and pictures that nobody can draw."""

    def part(key: str, value: Any) -> Any:
        if key not in _KEYS or not isinstance(value, list):
            return value
        return [
            {name: each[name] for name in each if name in _KEYS[key]}
            if isinstance(each, dict)
            else each
            for each in value
        ]

    kept = {key: part(key, value) for key, value in table.items() if key in _KEYS[""]}
    if isinstance(pictures := kept.get("pictures"), list):
        kept["pictures"] = [
            each
            for each in pictures
            if not isinstance(each, dict) or each.get("kind") in get_args(PictureKind)
        ]
    return kept


def _spelt_out(table: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """With a number each in place of the lines of a printed table."""
    columns, lines = table.get("columns", []), table.get("published", [])
    if not isinstance(columns, list) or not isinstance(lines, list):
        return table  # which the validation says
    published = []
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or "values" not in line:
            published.append(line)
            continue
        values = line["values"]
        if not isinstance(values, list) or len(values) != len(columns):
            said = len(values) if isinstance(values, list) else "no list"
            why = f"there are {len(columns)} columns and {said} values ({line.get('row')})"
            raise UsageError(f"{file}: published.{number}.values", why)
        rest = {key: value for key, value in line.items() if key != "values"}
        for column, value in zip(columns, values, strict=True):
            if value != "-" and not isinstance(value, int | float):
                why = f"{value!r} is neither a number nor '-' ({line.get('row')})"
                raise UsageError(f"{file}: published.{number}.values", why)
            if value != "-" and isinstance(column, dict):
                place = {key: column.get(key) for key in ("dataset", "metric")}
                published.append({**rest, **place, "value": value})
    return {**table, "published": published}


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

    def wrong(key: str, why: str, hint: str = "") -> UsageError:
        return UsageError(f"{file}: {key}", why, hint)

    for what, parts in (("datasets", suite.datasets), ("strategies", suite.strategies)):
        if not parts:
            raise wrong(what, "there are none", f"write a [[{what}]]")
        if twice := _twice(part.name for part in parts):
            raise wrong(f"{what}.name", f"{twice!r} comes twice")
    own = [each.name for each in suite.datasets]
    if twice := _twice([*own, *(group.name for group in suite.groups)]):
        raise wrong("groups.name", f"{twice!r} comes twice")
    for number, group in enumerate(suite.groups, 1):
        if not group.datasets or not set(group.datasets) <= set(own):
            why = f"{', '.join(group.datasets) or 'nothing'} is not among the data sets"
            raise wrong(f"groups.{number}.datasets", why, f"there are {', '.join(own)}")
    known = [*own, *(group.name for group in suite.groups)]
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
    """The first thing that is wrong: file and key, why, and a hint."""
    strange = ("extra_forbidden", "unexpected_keyword_argument")
    every = error.errors()
    # Of a key that is misspelt, not that the right one is missing.
    first = next((each for each in every if each["type"] in strange), every[0])
    where = [str(part + 1) if isinstance(part, int) else str(part) for part in first["loc"]]
    key = ".".join(where)
    if first["type"] in strange:
        known = _KEYS.get(where[0] if len(where) > 1 else "", ())
        near = closest(where[-1], known)
        hint = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        return f"{file}: {key}", "there is no such key", hint
    return f"{file}: {key}", first["msg"][0].lower() + first["msg"][1:], ""


def _folder() -> Any:
    return resources.files(__package__).joinpath("suites")


def _keys(kind: type) -> tuple[str, ...]:
    return tuple(each.name for each in fields(kind))


_SUITE = TypeAdapter(Suite)
_KEYS: Mapping[str, tuple[str, ...]] = {
    "": tuple(key for key in _keys(Suite) if key not in ("name", "text")),
    "datasets": _keys(Dataset),
    "strategies": _keys(Method),
    "groups": _keys(Group),
    "columns": _keys(Column),
    "published": (*_keys(Published), "values"),
    "pictures": _keys(Picture),
}


# The suite `own`: a user's questions over a folder of documents, asked of several strategies.

NAME = "own"

STRATEGIES = ("retrieve-read", "duquad", "dualrag", "spd-rag", "rdr2", "longrefiner")
_OTHERS = ("direct", "full-context")


def own_suite(questions: Path, documents: Path | None, format: str = "auto") -> Suite:
    """The suite of one file of questions; without `documents` each question brings its own.

    Questions that name documents are asked over these, the others over the whole folder.

    Raises:
        UsageError: as `parse_suite`.
    """
    over = "candidates" if documents is None else "documents"
    metrics = ("short", "evidence", "citations", "abstention", "cost")
    entries: list[tuple[str, str | Sequence[str]]] = [
        ("name", NAME),
        ("file", str(questions.absolute())),
        ("format", format),
        ("over", over),
        ("metrics", list(metrics)),
    ]
    if documents is not None:
        entries.append(("corpus", str(documents.absolute())))
    lines = [
        'title = "Your own questions"',
        "[[datasets]]",
        *(f"{key} = {_toml(value)}" for key, value in entries),
        *(f"[[strategies]]\nname = {_toml(name)}" for name in STRATEGIES),
        *(f"[[strategies]]\nname = {_toml(name)}\ndefault = false" for name in _OTHERS),
        *(_column(metric, label) for metric, label in _COLUMNS),
        '[[pictures]]\nkind = "pareto"',
    ]
    return parse_suite("\n".join(lines) + "\n", NAME, NAME)


_COLUMNS = (("containment", "Acc"), ("f1", "F1"), ("em", "EM"))


def _column(metric: str, label: str) -> str:
    parts = f'dataset = "{NAME}"\nmetric = "{metric}"\nlabel = "{label}"\nscale = 100'
    return f"[[columns]]\n{parts}"


def _toml(value: str | Sequence[str]) -> str:
    """A string or a list of them: JSON writes both as TOML does, with no bytes but ASCII."""
    return json.dumps(value)
