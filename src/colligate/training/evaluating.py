"""`colligate train evaluate`: what adapters make of samples that they were not trained on.

Each sample's messages are asked of the base and of the adapters, greedily, as inference asks.
Replies stay in `replies.db` of the folder, found by what was asked of which weights: a command
that was stopped goes on, more samples and other adapters may be asked for later, and nothing is
asked twice.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from copy import copy
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from colligate.errors import (
    ContextTooSmall,
    MalformedOutput,
    MissingPath,
    RequestRefused,
    UsageError,
    cause,
)
from colligate.evaluation import machine
from colligate.evaluation.cast import Named, records_of
from colligate.evaluation.datasets.sampling import some
from colligate.evaluation.estimate import MANY
from colligate.evaluation.identity import file_digest
from colligate.evaluation.spending import RunPurse, Spending
from colligate.library.blocking import in_thread
from colligate.library.given import Given
from colligate.models import ChatModel, Completion, Role
from colligate.models.cached_chat import CachedChat
from colligate.models.response_cache import ResponseCache
from colligate.opening import Opened
from colligate.settings import Named as NamedModel
from colligate.strategies.run import Run
from colligate.strategies.trace import Event, Listener, Noted, Progressed, Trace
from colligate.token_estimate import estimate_tokens
from colligate.training.asking import asked
from colligate.training.curating import held
from colligate.training.evaluated import BASE, Reply, Report, measured, write
from colligate.training.samples import Sample, read_samples
from colligate.training.scores import TASKS

_REMEMBERED = "replies.db"
_OF_THE_SAMPLE = (ContextTooSmall, MalformedOutput, RequestRefused)


@dataclass(frozen=True)
class Evaluation:
    """What is to be evaluated, and into which folder.

    `data` is a folder of curated samples and `split` one of its files ("held_out"). The reader
    that `named` names is the base. An adapter is a folder or a name, for all tasks, or
    "TASK=ADAPTER" for one; the folder of a model that was trained whole counts as well. `limit` is
    how many samples of each task, None all. `max_tokens_total` bounds what this process spends.
    """

    data: Path
    out: Path
    named: Named = field(default_factory=Named)
    adapters: Sequence[str] = ()
    tasks: Sequence[str] = ()
    split: str = "held_out"
    limit: int | None = None
    seed: int = 0
    concurrency: int = 4
    max_tokens_total: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Side:
    """The base, or an adapter on it; `tasks` are those that it is asked for."""

    name: str
    tasks: tuple[str, ...]
    run: Run


async def evaluate(request: Evaluation, on_event: Listener) -> Report:
    """Ask base and adapters for what is not there yet, and measure; the folder has the report.

    A reply that the sample itself prevents (a prompt that does not fit) is measured as empty.

    Raises:
        UsageError, MissingPath, FaultyRecord: the request is wrong, or the samples are.
        MissingCapability, WeightsUnavailable: an adapter cannot be put on the base.
        BudgetExceeded: the budget is spent; the same command goes on.
        ModelError: the model cannot be asked; the same command goes on.
    """
    trace = Trace([on_event], keep=False)
    samples, digest = await in_thread(_samples, request)
    spending = Spending(request.max_tokens_total)
    async with AsyncExitStack() as stack:
        stack.enter_context(held(request.out))
        opened = Opened()
        stack.push_async_callback(opened.aclose)
        tasks = tuple(dict.fromkeys(sample.task for sample in samples))
        base = await _base(request.named, tasks, opened, trace)
        made_with = {
            "base": asdict((await records_of({Role.READER: base}, None, None))["reader"]),
            "samples": {"file": str(_file(request)), "sha256": digest},
            "versions": await in_thread(machine.versions),
            "hardware": await in_thread(machine.hardware),
            "arguments": dict(request.arguments),
        }
        cache = ResponseCache(request.out / _REMEMBERED)
        stack.callback(cache.close)
        run = _run(CachedChat(base, cache), spending, trace)
        sides = [_Side(BASE, tasks, run)]
        for given in dict.fromkeys(request.adapters):
            sides.append(await _side(given, tasks, run, request.named, opened, cache))
        replies = await _replies(samples, sides, request.concurrency, trace)
        usage = run.meter.report().to_json()
        models = {side.name: side.run.model(Role.READER) for side in sides}
        made_with["weights"] = {
            side: getattr(model, "version", "") for side, model in models.items()
        }
        for warning in cache.warnings:
            trace.emit(Noted(warning, warning=True))
    report = Report(
        models={side: model.name for side, model in models.items()},
        split=request.split,
        samples=Counter(sample.task for sample in samples),
        measures=await in_thread(measured, replies, request.seed),
        failed=Counter(reply.side for reply in replies if reply.error),
        cut=Counter(reply.side for reply in replies if reply.finish_reason == "length"),
        seed=request.seed,
        usage=usage,
        made_with=made_with,
    )
    await in_thread(write, request.out, report, replies)
    return report


def _file(request: Evaluation) -> Path:
    return request.data / f"{request.split}.jsonl"


def _samples(request: Evaluation) -> tuple[list[Sample], str]:
    """The samples that are asked, task by task, and the digest of their file. Blocks.

    Raises:
        MissingPath, FaultyRecord, UsageError: they cannot be read, or there are none.
    """
    file = _file(request)
    if not file.is_file():
        why = f"it has no {file.name}"
        mend = "colligate train curate --out makes one"
        raise MissingPath(f"{request.data} holds no samples to evaluate", why, mend)
    for task in request.tasks:
        if task not in TASKS:
            raise UsageError(f"there is no task {task!r}", f"there are {', '.join(TASKS)}")
    read = list(read_samples(file, request.tasks))
    strange = next((sample for sample in read if sample.task not in TASKS), None)
    if strange is not None:
        why = f"there is no task {strange.task!r}"
        raise UsageError(f"cannot measure sample {strange.id} of {file}", why)
    found = [
        sample
        for task in TASKS
        for sample in some((s for s in read if s.task == task), request.limit, request.seed)
    ]
    if not found:
        there = ", ".join(dict.fromkeys(sample.task for sample in read_samples(file)))
        why = f"of {', '.join(request.tasks)}; it has {there}" if there else "it is empty"
        raise UsageError(f"{file} holds no samples", why, "curate more, or hold more of them out")
    return found, file_digest(file)


async def _base(named: Named, tasks: Sequence[str], opened: Opened, trace: Trace) -> ChatModel:
    settings = replace(named.settings, worker=None, scorer=None, judge=None)
    given = {Role.READER: named.models.get(Role.READER)}
    base = (await opened.by_role(given, settings, trace))[Role.READER]
    if "scope" in tasks and opened.unsure(base):
        await opened.probe(base)  # whether it gives odds of labels
    return base


def _run(model: ChatModel, spending: Spending, trace: Trace) -> Run:
    """A run without documents; of what it notes the warnings are passed on, once each."""
    said: set[str] = set()

    def pass_on(event: Event) -> None:
        if isinstance(event, Noted) and event.warning and event.text not in said:
            said.add(event.text)
            trace.emit(event)

    run = Run(Given(()), {Role.READER: model}, spending.meter(), Trace([pass_on], keep=False))
    run.purse = RunPurse(spending, run.meter)
    return run


async def _side(
    given: str,
    tasks: Sequence[str],
    run: Run,
    named: Named,
    opened: Opened,
    cache: ResponseCache,
) -> _Side:
    """An adapter's side.

    Raises:
        UsageError: it is for a task without samples, or called as the base is.
        MissingCapability, ModelError: it cannot be used.
    """
    task, equals, adapter = given.partition("=")
    if not (equals and task in TASKS):
        task, adapter = "", given
    if task and task not in tasks:
        raise UsageError(f"--adapter {given}", f"there are no samples of {task}")
    if given == BASE:
        why = f"{BASE} is what the report calls the model without an adapter"
        raise UsageError(f"--adapter {given}", why, f"give a folder of that name as ./{given}")
    if await in_thread(_is_whole, adapter):
        model = await opened.model(NamedModel(f"hf:{adapter}"), named.settings)
        side = copy(run)  # budget and meter are the same ones
        side.models = {Role.READER: CachedChat(model, cache)}
    else:
        side = await run.adapted(Role.READER, adapter)
    return _Side(given, (task,) if task else tuple(tasks), side)


def _is_whole(adapter: str) -> bool:
    """Whether it is the folder of a model and no adapter. Blocks."""
    place = Path(adapter).expanduser()
    return (place / "config.json").is_file() and not (place / "adapter_config.json").is_file()


async def _replies(
    samples: Sequence[Sample], sides: Sequence[_Side], concurrency: int, trace: Trace
) -> list[Reply]:
    """What each side replies to each sample of its tasks, and what that is worth."""
    wanted = [(sample, side) for sample in samples for side in sides if sample.task in side.tasks]
    if len(wanted) > MANY:
        tokens = sum(estimate_tokens(m.content) for each, _ in wanted for m in each.messages)
        trace.emit(Noted(f"at most {len(wanted):,} calls, about {tokens:,} tokens"))
    at_once, done = asyncio.Semaphore(concurrency), 0

    async def reply(sample: Sample, side: _Side) -> Reply:
        nonlocal done
        completion, error = Completion(""), ""
        try:
            completion = await asked(sample, side.run)
        except _OF_THE_SAMPLE as trouble:
            error = f"{type(trouble).__name__}: {trouble}"
        values = await in_thread(TASKS[sample.task].score, sample, completion.text)
        done += 1
        what = f"{sample.task} {sample.id}: {side.name}"
        trace.emit(Progressed("evaluating", done, len(wanted), what))
        return Reply(
            sample,
            side.name,
            completion.text,
            values,
            completion.finish_reason,
            error,
            completion.usage.input_tokens,
            completion.usage.output_tokens,
        )

    asking: list[asyncio.Task[Reply]] = []
    try:
        async with asyncio.TaskGroup() as group:
            for sample, side in wanted:
                await at_once.acquire()
                asking.append(group.create_task(reply(sample, side)))
                asking[-1].add_done_callback(lambda _: at_once.release())
    except BaseExceptionGroup as group:
        raise cause(group) from group
    return [each.result() for each in asking]
