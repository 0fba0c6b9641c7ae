"""The plan of a run: which questions are asked of which strategies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colligate.core.answer import Form
from colligate.core.parameters import PRESET, list_parameters, set_parameters, split_setting
from colligate.core.strategy import Strategy, list_strategies, load_strategy
from colligate.errors import MissingPath, UsageError
from colligate.lab.bench.datasets import read_questions
from colligate.lab.bench.outcome import Key
from colligate.lab.bench.question import Question, QuestionTask, draw_sample
from colligate.lab.bench.suites import Dataset, Method, Suite

# The form of every answer, whoever gives it: rows of a table answer alike.
_FORMS = {
    QuestionTask.SHORT: Form.JOINED,
    QuestionTask.SET: Form.LIST,
    QuestionTask.READINGS: Form.LONG,
    QuestionTask.LONG: Form.LONG,
    QuestionTask.JUDGED: Form.JOINED,  # of many documents: with room for a statement of each
}


@dataclass(frozen=True)
class SuiteEntry:
    """A strategy that takes part, configured as suite and command line say.

    `form` is that of all its answers if the command line names one. One that a person `named` must
    run.
    """

    method: Method
    strategy: Strategy
    reader: str = "auto"
    retriever: str | None = None
    form: Form | None = None
    named: bool = False

    def for_question(self, question: Question, dataset: Dataset) -> Strategy:
        """Return the strategy in the form of the data set or task; the oracle with its gold."""
        changes: dict[str, Any] = {}
        if hasattr(self.strategy, "gold"):
            changes = {"gold": question.gold, "sentences": question.gold_texts}
        if isinstance(getattr(self.strategy, "form", None), Form):
            changes["form"] = self.form or dataset.form or _FORMS[question.task]
        return replace(self.strategy, **changes) if changes else self.strategy  # type: ignore[type-var]


@dataclass(frozen=True)
class PlannedDataset:
    """A data set and the questions that are asked."""

    dataset: Dataset
    questions: tuple[Question, ...]


@dataclass(frozen=True)
class Plan:
    """The questions and strategies of a run, in the order of the work."""

    suite: Suite
    datasets: tuple[PlannedDataset, ...]
    entries: tuple[SuiteEntry, ...]

    @property
    def answers(self) -> int:
        """The number of answers there will be."""
        return sum(len(each.questions) for each in self.datasets) * len(self.entries)

    @property
    def searches(self) -> bool:
        """Whether any strategy searches passages."""
        return any(entry.strategy.needs.searches for entry in self.entries)

    def row_keys(self) -> Iterator[Key]:
        """Yield the key of each row, in the order of the work."""
        for planned in self.datasets:
            for question in planned.questions:
                for entry in self.entries:
                    yield Key(planned.dataset.name, question.id, entry.method.name)


def plan(
    suite: Suite,
    data: Path,
    *,
    entries: Sequence[SuiteEntry],
    datasets: Sequence[str] = (),
    limit: int | None = None,
    seed: int = 0,
) -> Plan:
    """Read the questions to ask: `limit` of each of `datasets`, or as the suite says. Blocks."""
    chosen = [suite.dataset(name) for name in dict.fromkeys(datasets)]
    chosen = chosen or [each for each in suite.datasets if each.default]
    if not any(entry.strategy.needs.reads for entry in entries):
        # Questions may come without documents, and their corpus may be missing.
        chosen = [replace(each, over="candidates", corpus=None) for each in chosen]
    planned = []
    for dataset in chosen:
        file = require_path(data, dataset.file)
        if dataset.over != "candidates" and dataset.corpus is not None:
            require_path(data, dataset.corpus)
        most = limit if limit is not None else dataset.questions
        questions = read_questions(file, format=dataset.format)
        wanted = dataset.where.items()
        matching = (q for q in questions if all(q.meta.get(key) == value for key, value in wanted))
        sample = tuple(draw_sample(matching, most, seed))
        if not sample:
            where = ", ".join(f"{key} = {value}" for key, value in wanted)
            why = f"none with {where}" if where else ""
            raise UsageError(f"{file} holds no questions for {dataset.name}", why)
        _require_documents(dataset, sample, entries)
        planned.append(PlannedDataset(dataset, sample))
    return Plan(suite, tuple(planned), tuple(entries))


def require_path(data: Path, file: str) -> Path:
    """Return the path of a file of the data; MissingPath if it is missing."""
    path = data / file
    if not path.exists():
        why, hint = "the suite needs it", "check --data, or choose other --datasets"
        raise MissingPath(f"there is no {path}", why, hint)
    return path


def _require_documents(
    dataset: Dataset, questions: Sequence[Question], entries: Sequence[SuiteEntry]
) -> None:
    """Check that no strategy is asked over nothing: its refusals would count against it."""
    if dataset.over != "candidates":
        return
    bare = next((question for question in questions if not question.documents), None)
    reading = next((each for each in entries if each.strategy.needs.reads), None)
    if bare is not None and reading is not None:
        raise UsageError(
            f"{dataset.name} has questions without documents ({bare.id})",
            f"{reading.method.name} reads documents",
            "choose only strategies that read none, or name a corpus: --documents DIR for the "
            'suite own, over = "corpus" in another',
        )


def configure_entries(
    suite: Suite,
    names: Sequence[str] = (),
    settings: Sequence[str] = (),
    reader: str | None = None,
    retriever: str | None = None,
) -> tuple[SuiteEntry, ...]:
    """Configure the suite's strategies of these names, or its default ones, in the order given.

    A name that is not the suite's own may be any registered strategy's. `settings` are texts such
    as "k=3", for the strategies that have the parameter; they, `reader` and `retriever` replace
    the suite's, but not what tells rows of the table apart.
    """
    own = {method.name: method for method in suite.strategies}
    wanted = names or [method.name for method in suite.strategies if method.default]
    for name in wanted:
        if name not in own and name not in list_strategies():
            hint = "colligate strategies lists the others"
            raise UsageError(f"no strategy {name!r}", f"the suite has {', '.join(own)}", hint)
    methods = [
        own.get(name) or Method(name, name, label=name, reader=suite.reader)
        for name in dict.fromkeys(wanted)
    ]
    kinds = [load_strategy(method.strategy) for method in methods]
    known = {kind: {PRESET, *(each.name for each in list_parameters(kind))} for kind in kinds}
    given = {split_setting(setting)[0]: setting for setting in settings}
    every = sorted(set().union(*known.values()))
    for name in given:
        if name not in every:
            why = f"no strategy of this run has {name!r}"
            raise UsageError(f"--set {given[name]}", why, f"there are {', '.join(every)}")
    entries = []
    for method, kind in zip(methods, kinds, strict=True):
        if reader is not None and method.reader not in (suite.reader, reader):
            why = f"{method.name} is the row of the reader {method.reader}"
            raise UsageError(f"--reader {reader}", why, "leave that row or the reader out")
        if retriever is not None and method.retriever not in (None, retriever):
            why = f"{method.name} is the row of the retriever {method.retriever}"
            raise UsageError(f"--retriever {retriever}", why, "leave that row or the retriever out")
        own_given = {name: given[name] for name in given if name in known[kind]}
        kept = _find_kept(suite, method, own_given)
        chosen = [setting for name, setting in own_given.items() if name not in kept]
        strategy = set_parameters(kind, [*method.set, *chosen])
        form = getattr(strategy, "form", None) if "form" in own_given else None
        reading = reader or method.reader or "auto"
        finding = retriever or method.retriever
        entries.append(SuiteEntry(method, strategy, reading, finding, form, named=bool(names)))
    return tuple(entries)


def _find_kept(suite: Suite, method: Method, given: Mapping[str, str]) -> set[str]:
    """Return what a row sets to `none`, and others not: there the settings given do not count.

    Any other value that tells a row from others of its strategy is not replaced but refused.
    """
    rows = [each for each in suite.strategies if each.strategy == method.strategy]
    values = {row.name: {k: v for k, _, v in map(split_setting, row.set)} for row in rows}
    own = values.get(method.name, {})
    if "form" in own:
        why = "all rows of a table answer in one form"
        raise UsageError(f"{method.name} sets its form", why, "set the form of the data set")
    telling = {
        k for k in own.keys() & given.keys() if any(v.get(k) != own[k] for v in values.values())
    }
    for name in sorted(telling):
        if own[name] != "none":
            why = f"{name}={own[name]} is what the row {method.name} measures"
            raise UsageError(f"--set {given[name]}", why, "leave that row or the setting out")
    return telling
