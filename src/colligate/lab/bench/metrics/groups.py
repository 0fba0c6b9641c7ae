"""Groups of metrics, and the models that some of them ask."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from colligate.errors import MissingExtra, UsageError
from colligate.lab.bench.outcome import Outcome
from colligate.lab.bench.question import Question
from colligate.models.base import ChatModel

Measures = Mapping[str, float]
"""Values by the metric's name."""

Entails = Callable[[str, str], Awaitable[bool]]
"""Tells whether a premise entails a hypothesis."""

Reads = Callable[[str, str], Awaitable[str]]
"""Returns the answer to a question in the words of a text; empty where it holds none."""


@dataclass(frozen=True)
class MetricGroup:
    """Metrics that are taken together, in one of three ways.

    `compute` makes them of a question and its outcome, `ask` also asks the model that it `needs`,
    `of_run` makes them of all answers of a strategy at once. The first two return None where they
    do not apply to such a question. `modules` are packages that must be installed (the extra
    `bench`). Only a group that is `always` taken is taken of a question that the documents do not
    answer. Lower values are better of the metrics that begin with one of `lower`, and neither
    higher nor lower ones of those that begin with one of `neutral`. Other packages register groups
    under the entry-point group `colligate.metrics`.
    """

    name: str
    compute: Callable[[Question, Outcome], Measures | None] | None = None
    ask: Callable[[Question, Outcome, Any], Awaitable[Measures | None]] | None = None
    of_run: Callable[[Sequence[tuple[Question, Outcome]]], Measures] | None = None
    needs: Literal["", "judge", "nli", "qa"] = ""
    modules: tuple[str, ...] = ()
    always: bool = False
    lower: tuple[str, ...] = ()
    neutral: tuple[str, ...] = ()


def import_extra(module: str) -> Any:
    """Import a package of the extra `bench`."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra.of(error, f"this metric needs {module}", "bench") from error


@dataclass(frozen=True)
class Backends:
    """The models that were given for metrics; a group without its own cannot be measured."""

    judge: ChatModel | None = None
    nli: Entails | None = None
    qa: Reads | None = None


class MissingBackend(UsageError):
    """A metric needs a model that was not given."""


def entail_by_trained(name: str) -> Entails:
    """Entailment by a T5 trained for it: ALCE's is `google/t5_xxl_true_nli_mixture` (11B)."""
    from colligate.lab.baselines.encoders import get_seq2seq

    model = get_seq2seq(name)

    async def entails(premise: str, hypothesis: str) -> bool:
        # The end stays, however long the premise.
        end = f" hypothesis: {hypothesis}"
        said = await model.write(f"premise: {premise}", end=end, read_tokens=4096, max_tokens=10)
        return said == "1"

    return entails


def read_by_trained(name: str) -> Reads:
    """Answers by a reader of SQuAD 2: ALCE's is `gaotianyu1350/roberta-large-squad`."""
    from colligate.lab.baselines.encoders import ExtractiveReader

    return ExtractiveReader(name).read
