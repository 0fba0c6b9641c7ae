"""What a suite is made of: data sets, strategies, the table that comes of them, its pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeVar

from pydantic import ConfigDict

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
        mend = f"did you mean {near}?" if near else f"there are {', '.join(known)}"
        raise UsageError(f"{suite} has no {what} {name!r}", "", mend)
    return known[name]
