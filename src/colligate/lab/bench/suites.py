"""Suites: what is asked of which strategies, and the table that comes of it. A suite is a file.

Those of the papers' tables are beside this module, in `suites/NAME.toml`; a file of one's own is
named by its path (docs/bench.md, "A suite of your own").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from colligate.core.answer import Form
from colligate.documents.chunking import parse_chunker
from colligate.errors import UsageError
from colligate.lab.bench.toml_files import TomlFolder, explain_invalid, parse_toml
from colligate.readers import ReaderName

Over = Literal["candidates", "corpus", "documents"]
PictureKind = Literal[
    "recall-at-k",
    "by-gold-position",
    "pareto",
    "attention-by-position",
    "columns",
    "reliability",
    "risk-coverage",
]


OVER = " over "
"""Between a metric and the strategy that it is compared with, in the metric of a column."""


class _Part:
    """A part of a suite's file: an unknown key in it is an error."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class Suite(_Part):
    """A table of a paper, or one of your own. `text` is its file, as it was read.

    `reader` is the default of its strategies: "quoting" of a paper's table, else "auto". `chunker`
    names what cuts documents into passages.
    """

    title: str
    datasets: tuple[Dataset, ...]
    strategies: tuple[Method, ...]
    groups: tuple[DatasetGroup, ...] = ()
    columns: tuple[Column, ...] = ()
    published: tuple[Published, ...] = ()
    pictures: tuple[Picture, ...] = ()
    paper: str = ""
    about: str = ""
    reader: ReaderName | None = None
    chunker: str | None = None
    name: str = ""
    text: str = ""

    def dataset(self, name: str) -> Dataset:
        """Return the data set of a name."""
        known = {each.name: each for each in self.datasets}
        if name not in known:
            hint = f"there are {', '.join(known)}"
            raise UsageError(f"{self.name} has no data set {name!r}", "", hint)
        return known[name]


@dataclass(frozen=True)
class Dataset(_Part):
    """Questions, and what they are asked over.

    `file` and `corpus` are paths below the folder of data, or absolute. `over`: the documents
    that come with each question ("candidates"), the whole `corpus`, or whole documents that the
    question names and the corpus holds ("documents"). Groups in `optional` are measured where the
    model they ask is given. `questions` is how many are asked by default; None is all. `where`
    keeps those whose `meta` has these values. Without a `form` the question's task says it.
    """

    name: str
    file: str
    format: str = "auto"
    over: Over = "candidates"
    corpus: str | None = None
    metrics: tuple[str, ...] = ("short", "evidence", "cost")
    optional: tuple[str, ...] = ()
    questions: int | None = None
    where: Mapping[str, str | int | bool] = field(default_factory=dict)
    form: Form | None = None
    default: bool = True


@dataclass(frozen=True)
class Method(_Part):
    """A strategy as the suite asks it: its registered name, and its parameters as `--set` has them.

    `name` tells it apart from the others of the suite, `label` is its name in the table. One that
    is not `default` runs only when it is named. Without a `reader` it has the suite's. `retriever`
    is as `--retriever` has it; without one the strategy searches as it is published.
    """

    name: str
    strategy: str = ""
    set: tuple[str, ...] = ()
    label: str = ""
    default: bool = True
    reader: ReaderName | None = None
    retriever: str | None = None


@dataclass(frozen=True)
class DatasetGroup(_Part):
    """Data sets under one name: a value of the group is the mean of theirs, equally weighted."""

    name: str
    datasets: tuple[str, ...]


@dataclass(frozen=True)
class Column(_Part):
    """A column of the table as printed: a metric of a data set or group, multiplied by `scale`.

    The first one is the table's main figure. A `metric` "A/B" is a ratio of two means, and
    "A over STRATEGY" what A is more than that row's, on the same questions.
    """

    dataset: str
    metric: str
    label: str = ""
    scale: float = 1.0


@dataclass(frozen=True)
class Published(_Part):
    """A number that the paper itself printed, as printed.

    `row` is its row's name there: the label of the suite's strategy where the suite has it. A file
    may give a whole printed line as `values`, one for each column, "-" for an empty cell.
    """

    row: str
    dataset: str
    metric: str
    value: float
    model: str = ""
    note: str = ""


@dataclass(frozen=True)
class Picture(_Part):
    """A figure that belongs in the report, of one data set and metric where it names them."""

    kind: PictureKind
    dataset: str = ""
    metric: str = ""
    label: str = ""


def read_suite(name: str) -> Suite:
    """Return the suite of a name (`list_suites`), or the one in a file of the user's."""
    return parse_suite(*_SUITES.read(name))


@cache
def list_suites() -> tuple[str, ...]:
    """Return the names of the suites that come with colligate."""
    return _SUITES.names()


def parse_suite(text: str, name: str, file: str, *, strict: bool = True) -> Suite:
    """Return the suite of a TOML text, unless `strict` without keys that are not known."""
    extra: Literal["forbid", "ignore"] = "forbid" if strict else "ignore"
    table = parse_toml(text, file)
    if not strict:
        pictures, kinds = table.get("pictures", ()), get_args(PictureKind)
        table["pictures"] = [each for each in pictures if each.get("kind") in kinds]
    try:
        suite = _SUITE.validate_python(_expand_published(table, file), extra=extra)
    except ValidationError as error:
        raise explain_invalid(f"{file}: ", error, nested=True) from error
    reader: ReaderName = suite.reader or ("quoting" if suite.paper else "auto")
    suite = replace(
        suite,
        reader=reader,
        name=name,
        text=text,
        strategies=tuple(
            replace(
                each,
                strategy=each.strategy or each.name,
                label=each.label or each.name,
                reader=each.reader or reader,
            )
            for each in suite.strategies
        ),
        columns=tuple(replace(each, label=each.label or each.metric) for each in suite.columns),
    )
    _check(suite, file)
    return suite


def _expand_published(table: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """Return the table with one number each in place of the lines of a printed table."""
    columns, lines = table.get("columns", []), table.get("published", [])
    if not isinstance(columns, list) or not isinstance(lines, list):
        return table  # the validation reports it
    published = []
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict) or "values" not in line:
            published.append(line)
            continue
        values = line["values"]
        if not isinstance(values, list) or len(values) != len(columns):
            why = f"expected {len(columns)} values, one a column ({line.get('row')})"
            raise UsageError(f"{file}: published.{number}.values", why)
        rest = {key: value for key, value in line.items() if key != "values"}
        for column, value in zip(columns, values, strict=True):
            if value != "-" and isinstance(column, dict):
                place = {key: column.get(key) for key in ("dataset", "metric")}
                published.append({**rest, **place, "value": value})
    return {**table, "published": published}


def _check(suite: Suite, file: str) -> None:
    """Check that the parts of a suite fit each other."""

    def fault(key: str, why: str, hint: str = "") -> UsageError:
        return UsageError(f"{file}: {key}", why, hint)

    own = [each.name for each in suite.datasets]
    known = [*own, *(group.name for group in suite.groups)]
    for what, names in (
        ("datasets", own),
        ("strategies", [each.name for each in suite.strategies]),
        ("groups", known),
    ):
        if not names:
            raise fault(what, "the suite has none", f"write a [[{what}]]")
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise fault(f"{what}.name", f"{twice!r} comes twice")
    if suite.chunker is not None:
        try:
            parse_chunker(suite.chunker)
        except UsageError as error:
            raise fault("chunker", str(error)) from error
    for number, group in enumerate(suite.groups, 1):
        if not group.datasets or not set(group.datasets) <= set(own):
            why = f"{', '.join(group.datasets) or 'nothing'} is not among the data sets"
            raise fault(f"groups.{number}.datasets", why, f"there are {', '.join(own)}")
    for what, named in (
        ("columns", [each.dataset for each in suite.columns]),
        ("published", [each.dataset for each in suite.published]),
        ("pictures", [each.dataset or own[0] for each in suite.pictures]),
    ):
        for number, dataset in enumerate(named, 1):
            if dataset not in known:
                there = f"there are {', '.join(known)}"
                raise fault(f"{what}.{number}.dataset", f"unknown data set {dataset!r}", there)
    rows = [each.name for each in suite.strategies]
    for number, column in enumerate(suite.columns, 1):
        base = column.metric.partition(OVER)[2]
        if base and base not in rows:
            there = f"there are {', '.join(rows)}"
            raise fault(f"columns.{number}.metric", f"no strategy {base!r}", there)
    for each in suite.datasets:
        if each.over != "candidates" and each.corpus is None:
            why = f"{each.name} is asked over its {each.over}, and names no corpus"
            raise fault("datasets.corpus", why, 'write corpus = "FILE"')
        if each.questions is not None and each.questions < 1:
            raise fault("datasets.questions", f"{each.name} needs at least 1 question")


_SUITES = TomlFolder(__package__, "suites", "suite")
_SUITE = TypeAdapter(Suite)


# The suite `own`: a user's questions over a folder of documents

OWN = "own"


def make_own_suite(questions: Path, documents: Path | None, format: str = "auto") -> Suite:
    """Return the suite of one file of questions, over the documents they name, or all."""
    keys = {"file": str(questions.absolute()), "format": format}
    if documents is not None:
        keys |= {"over": "documents", "corpus": str(documents.absolute())}
    # JSON writes strings as TOML does, in ASCII.
    lines = (f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    text = resources.files(__package__).joinpath("templates", "own.toml").read_text("utf-8")
    return parse_suite(text + "".join(lines), OWN, OWN)
