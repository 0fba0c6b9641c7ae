"""What a run asks: which questions of which data sets, of which strategies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from colligate.bench.datasets.formats import read_questions
from colligate.bench.datasets.sampling import draw_sample
from colligate.bench.question import Question, QuestionTask
from colligate.bench.rows import Key, Row
from colligate.bench.suites import Dataset, Method, Suite
from colligate.core.parameters import list_parameters, set_parameters
from colligate.core.reader import Form
from colligate.core.strategy import Strategy, estimate_calls, list_strategies, load_strategy
from colligate.documents.tokens import estimate_tokens
from colligate.errors import MissingPath, UsageError, closest

_PACKED = 3  # times as large is a text that is unpacked
_FORMS = {
    QuestionTask.SET: Form.LIST,
    QuestionTask.READINGS: Form.LONG,
    QuestionTask.LONG: Form.LONG,
}


@dataclass(frozen=True)
class SuiteEntry:
    """A strategy that takes part, set up as the suite says."""

    method: Method
    strategy: Strategy

    def asked(self, question: Question) -> Strategy:
        """The strategy for one question: in the form that its task wants, the oracle with its gold.

        A form that the suite sets stays.
        """
        told: dict[str, Any] = {}
        if hasattr(self.strategy, "gold"):
            told = {"gold": question.gold, "sentences": question.gold_texts}
        is_set = any(text.partition("=")[0].strip() == "form" for text in self.method.set)
        has_form = isinstance(getattr(self.strategy, "form", None), Form)
        if has_form and not is_set and question.task in _FORMS:
            told["form"] = _FORMS[question.task]
        return replace(self.strategy, **told) if told else self.strategy  # type: ignore[type-var]


@dataclass(frozen=True)
class Asked:
    """A data set and those of its questions that are asked, in order.

    `corpus_bytes` is how large its corpus is on the disk, unpacked as far as one can tell.
    """

    dataset: Dataset
    questions: tuple[Question, ...]
    corpus_bytes: int = 0


@dataclass(frozen=True)
class Plan:
    """What a run asks, in the order in which it does.

    `named_outright`: the strategies were chosen by name, so none of them may be left out.
    """

    suite: Suite
    datasets: tuple[Asked, ...]
    contenders: tuple[SuiteEntry, ...]
    named_outright: bool = False

    @property
    def answers(self) -> int:
        """How many there will be."""
        return sum(len(asked.questions) for asked in self.datasets) * len(self.contenders)

    @property
    def searches(self) -> bool:
        """Whether any strategy looks passages up."""
        return any(contender.strategy.needs.searches for contender in self.contenders)


def contenders(
    suite: Suite, names: Sequence[str] = (), settings: Sequence[str] = ()
) -> tuple[SuiteEntry, ...]:
    """The suite's strategies of these names, or its default ones; set up, in the order given.

    A name that is not the suite's own may be any registered strategy's. `settings` are texts such
    as "k=3" for those strategies that have the parameter, beneath what the suite itself sets.

    Raises:
        UsageError: there is no such strategy, or it has no such parameter, or none has.
    """
    own = {method.name: method for method in suite.strategies}
    wanted = names or [method.name for method in suite.strategies if method.default]
    methods = []
    for name in dict.fromkeys(wanted):
        if name not in own and name not in list_strategies():
            near = closest(name, [*own, *list_strategies()])
            why = f"the suite has {', '.join(own)}"
            hint = f"did you mean {near}?" if near else "colligate strategies lists the others"
            raise UsageError(f"no strategy {name!r}", why, hint)
        methods.append(own.get(name) or Method(name, name, label=name))
    kinds = [load_strategy(method.strategy) for method in methods]
    there = {kind: {each.name for each in list_parameters(kind)} for kind in kinds}
    for setting in settings:
        name, known = _parameter(setting), set().union(*there.values())
        if name not in known:
            near = closest(name, sorted(known))
            hint = (
                f"did you mean {near}?" if near else "colligate strategies NAME shows what it has"
            )
            raise UsageError(f"--set {setting}", f"no strategy that is asked has {name!r}", hint)
    return tuple(
        SuiteEntry(
            method,
            set_parameters(
                kind, [*(s for s in settings if _parameter(s) in there[kind]), *method.set]
            ),
        )
        for method, kind in zip(methods, kinds, strict=True)
    )


def _parameter(setting: str) -> str:
    return setting.partition("=")[0].strip()


def plan(
    suite: Suite,
    data: Path,
    *,
    taking_part: Sequence[SuiteEntry],
    datasets: Sequence[str] = (),
    limit: int | None = None,
    seed: int = 0,
) -> Plan:
    """The questions that are asked: of each data set `limit` or as many as the suite says. Blocks.

    `datasets` are names of the suite's; without any its default ones are asked.

    Raises:
        UsageError: there is no such data set, or there is nothing that a strategy could read.
        MissingPath, FaultyRecord: a file of questions is not there, or is wrong.
    """
    chosen = [suite.dataset(name) for name in dict.fromkeys(datasets)]
    chosen = chosen or [each for each in suite.datasets if each.default]
    if not any(contender.strategy.needs.reads for contender in taking_part):
        # Questions may come without documents, and their corpus need not be there.
        chosen = [replace(each, over="candidates", corpus=None) for each in chosen]
    asked = []
    for dataset in chosen:
        file = existing(data, dataset.file)
        corpus_bytes = 0
        if dataset.over != "candidates" and dataset.corpus is not None:
            corpus_bytes = _size(existing(data, dataset.corpus))
        most = limit if limit is not None else dataset.questions
        questions = read_questions(file, format=dataset.format)
        there = (question for question in questions if _is_meant(question, dataset))
        sample = tuple(draw_sample(there, most, seed))
        if not sample:
            where = ", ".join(f"{key} = {value}" for key, value in dataset.where.items())
            why = f"none with {where}" if where else ""
            raise UsageError(f"{file} holds no questions for {dataset.name}", why)
        _hold_to_documents(dataset, sample, taking_part)
        asked.append(Asked(dataset, sample, corpus_bytes))
    return Plan(suite, tuple(asked), tuple(taking_part))


def _is_meant(question: Question, dataset: Dataset) -> bool:
    return all(question.meta.get(key) == value for key, value in dataset.where.items())


def existing(data: Path, file: str) -> Path:
    """The place of a file of the data.

    Raises:
        MissingPath: it is not there.
    """
    path = data / file
    if not path.exists():
        why = "the suite asks for it"
        raise MissingPath(f"there is no {path}", why, "name its --data, or take other --datasets")
    return path


def _size(path: Path) -> int:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
    return sum(file.stat().st_size * (_PACKED if file.suffix == ".gz" else 1) for file in files)


def _hold_to_documents(
    dataset: Dataset, questions: Sequence[Question], taking_part: Sequence[SuiteEntry]
) -> None:
    """Else a strategy would be asked over nothing, and its refusals counted against it."""
    if dataset.over != "candidates":
        return
    bare = next((question for question in questions if not question.documents), None)
    reading = next((each for each in taking_part if each.strategy.needs.reads), None)
    if bare is not None and reading is not None:
        raise UsageError(
            f"{dataset.name} has questions without documents ({bare.id})",
            f"{reading.method.name} reads documents",
            "take only strategies that read none, or name a corpus: --documents DIR for the suite "
            'own, over = "corpus" in another',
        )


# About how many model calls and tokens a run will take, said before anything is asked.

MANY = 300
"""So many calls are said before they are made."""

_PASSAGES = 10  # that a prompt shows of a corpus
_PASSAGE_TOKENS = 200
_DOCUMENTS = 20  # of a corpus that a strategy looks at
_INSTRUCTION_TOKENS = 600  # of a prompt, and what is replied
_MOST_TOKENS = 16_000  # a prompt rarely has more: what does not fit is searched
_BYTES_A_TOKEN = 4


@dataclass(frozen=True)
class Estimate:
    """Answers still to be given, and about what their calls will take together.

    `measured` are strategies whose figures are those of rows there are; of the others they are
    rough.
    """

    answers: int
    calls: float
    tokens: float
    measured: Collection[str] = ()

    def to_json(self) -> dict[str, Any]:
        """The estimate for programs."""
        return {
            "answers": self.answers,
            "calls": _round(self.calls),
            "tokens": _round(self.tokens),
            "measured": sorted(self.measured),
        }

    def __str__(self) -> str:
        return (
            f"{self.answers:,} answers to come: about {_round(self.calls):,} model calls and "
            f"{_round(self.tokens):,} tokens"
        )


def estimated(plan: Plan, rows: Mapping[Key, Row]) -> Estimate:
    """What the answers without a row will take: as those with one did, else by rule of thumb."""
    answers, calls, tokens = 0, 0.0, 0.0
    measured = set()
    for asked in plan.datasets:
        for contender in plan.contenders:
            key = (asked.dataset.name, contender.method.name)
            missing = [q for q in asked.questions if Key(key[0], q.id, key[1]) not in rows]
            done = [row for row in rows.values() if (row.dataset, row.strategy) == key]
            answers += len(missing)
            if done:
                measured.add(contender.method.name)
                calls += len(missing) * _mean(map(_calls_used, done))
                tokens += len(missing) * _mean(map(_tokens_of, done))
            else:
                for question in missing:
                    each = _calls_of(contender, asked, question)
                    calls += each
                    tokens += each * _prompt_tokens(contender, asked, question)
    return Estimate(answers, calls, tokens, measured)


def _calls_of(contender: SuiteEntry, asked: Asked, question: Question) -> float:
    calls = estimate_calls(contender.strategy)
    documents = len(question.documents) if asked.dataset.over != "corpus" else _DOCUMENTS
    return calls.question + calls.document * documents


def _prompt_tokens(contender: SuiteEntry, asked: Asked, question: Question) -> float:
    shown: float = _PASSAGES * _PASSAGE_TOKENS
    whole = contender.strategy.needs.whole
    if not contender.strategy.needs.reads:
        shown = 0
    elif asked.dataset.over == "candidates":
        shown = sum(estimate_tokens(document.text) for document in question.documents)
        if contender.strategy.needs.searches:
            shown = min(shown, _PASSAGES * _PASSAGE_TOKENS)
    elif whole and (asked.dataset.over == "corpus" or not question.documents):
        shown = asked.corpus_bytes / _BYTES_A_TOKEN
    elif not contender.strategy.needs.searches:
        shown = _MOST_TOKENS
    return (shown if whole else min(shown, _MOST_TOKENS)) + _INSTRUCTION_TOKENS


def _tokens_of(row: Row) -> float:
    usage = row.outcome.usage
    return float(usage.get("input_tokens", 0)) + float(usage.get("output_tokens", 0))


def _calls_used(row: Row) -> float:
    return float(row.outcome.usage.get("calls", 0))


def _mean(values: Iterable[float]) -> float:
    every = list(values)
    return sum(every) / len(every)


def _round(number: float) -> int:
    """To two digits: it is an estimate."""
    return int(float(f"{number:.1e}"))
