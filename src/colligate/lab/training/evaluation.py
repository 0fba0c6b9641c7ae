"""Compare adapters with their base on held-out samples: `colligate train evaluate`.

The base and the adapters get each sample's messages, greedily, as at inference. Replies are stored
in `replies.db` of the folder, by messages and weights: an interrupted command resumes, more samples
and other adapters may be asked for later, and nothing is asked twice.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from colligate.concurrency import in_thread, map_concurrent
from colligate.core.events import Event, Listener, Noted, Progressed, Trace
from colligate.core.run import Run
from colligate.errors import (
    ContextTooSmall,
    MalformedOutput,
    MissingCapability,
    MissingPath,
    RequestRefused,
    UsageError,
)
from colligate.lab.bench.participants import ModelNames
from colligate.lab.bench.question import draw_sample
from colligate.lab.bench.significance import Difference, paired_bootstrap
from colligate.lab.jobs.files import lock_folder, write_whole
from colligate.lab.jobs.identity import hardware, model_records, versions
from colligate.lab.jobs.spending import SharedTokenBudget, Spending
from colligate.lab.training.samples import HELD_OUT, Sample, read_samples
from colligate.lab.training.scores import STEPS, average_values, score_reply
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, ChatModel, Completion, Role
from colligate.models.cache import CachedChat, ResponseCache
from colligate.models.download import hash_file
from colligate.models.structured import json_schema_of, with_schema
from colligate.strategies.longrefiner.method import FORCED, LABELS

REPORT, REPLIES = "report.json", "replies.jsonl"
BASE = "base"

_CACHE = "replies.db"
_SEED = 0  # of the samples that are drawn, and of the bootstrap
_SAMPLE_ERRORS = (ContextTooSmall, MalformedOutput, RequestRefused)


@dataclass(frozen=True)
class Evaluation:
    """A request to evaluate adapters, with its folder `out`.

    `data` is a folder of curated samples, some of them held out. The reader of `names` is the base.
    An adapter is a folder or a name. `limit` is how many samples of each task, None all.
    `max_tokens_total` limits what this process spends.
    """

    data: Path
    out: Path
    names: ModelNames = field(default_factory=ModelNames)
    adapters: Sequence[str] = ()
    tasks: Sequence[str] = ()
    limit: int | None = None
    concurrency: int = 4
    max_tokens_total: int | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)


async def evaluate(request: Evaluation, on_event: Listener) -> EvaluationReport:
    """Ask base and adapters for the missing replies, measure all, and write the report.

    If the sample itself prevents a reply (a prompt that does not fit), it is measured as empty.
    After BudgetExceeded or a ModelError the same call resumes.
    """
    trace = Trace([on_event], keep=False)
    samples, digest = await in_thread(_load_samples, request)
    spending = Spending(request.max_tokens_total)
    async with AsyncExitStack() as stack:
        stack.enter_context(lock_folder(request.out))
        session = await stack.enter_async_context(request.names.session())
        base = (await session.open_models(trace, [Role.READER]))[Role.READER]
        if any(sample.task == "scope" for sample in samples) and session.find_unprobed(base):
            await session.probe(base)  # does it give odds of labels?
        made_with = {
            "base": asdict((await model_records({Role.READER: base}, None, None))["reader"]),
            "samples": {"file": str(request.data / HELD_OUT), "sha256": digest},
            "versions": await in_thread(versions),
            "hardware": await in_thread(hardware),
            "arguments": dict(request.arguments),
        }
        cache = ResponseCache(request.out / _CACHE)
        stack.callback(cache.close)
        run = _start_run(CachedChat(base, cache), spending, trace)
        sides = {BASE: run}
        for given in dict.fromkeys(request.adapters):
            if given == BASE:
                why = f"the report calls the model without an adapter {BASE}"
                hint = f"give a folder of that name as ./{given}"
                raise UsageError(f"--adapter {given}", why, hint)
            sides[given] = await run.with_adapter(Role.READER, given)
        replies = await _ask_all(samples, sides, request.concurrency, trace)
        usage = run.meter.report().to_json()
        models = {side: its.model(Role.READER) for side, its in sides.items()}
        made_with["weights"] = {
            side: getattr(model, "version", "") for side, model in models.items()
        }
        for warning in cache.warnings:
            trace.emit(Noted(warning, warning=True))
    report = EvaluationReport(
        models={side: model.name for side, model in models.items()},
        samples=Counter(sample.task for sample in samples),
        measures=await in_thread(compare_sides, replies),
        failed=Counter(reply.side for reply in replies if reply.error),
        cut=Counter(r.side for r in replies if r.completion.finish_reason == "length"),
        usage=usage,
        made_with=made_with,
    )
    lines = (json.dumps(reply.to_json(), ensure_ascii=False) + "\n" for reply in replies)
    await in_thread(write_whole, request.out / REPLIES, lines)
    text = json.dumps(report.to_json(), ensure_ascii=False, indent=1)
    await in_thread(write_whole, request.out / REPORT, [f"{text}\n"])
    return report


def _load_samples(request: Evaluation) -> tuple[list[Sample], str]:
    """Return the samples that are asked, task by task, and the digest of their file. Blocks."""
    file = request.data / HELD_OUT
    if not file.is_file():
        why = f"it has no {file.name}"
        hint = "colligate train curate --out makes one"
        raise MissingPath(f"{request.data} holds no samples to evaluate", why, hint)
    every = list(read_samples(file))
    there = dict.fromkeys(sample.task for sample in every)
    for task in (*request.tasks, *there):
        if task not in STEPS:
            raise UsageError(f"there is no task {task!r}", f"there are {', '.join(STEPS)}")
    found = [
        sample
        for task in STEPS
        if not request.tasks or task in request.tasks
        for sample in draw_sample((s for s in every if s.task == task), request.limit, _SEED)
    ]
    if not found:
        has = f"of {', '.join(request.tasks)}; it has {', '.join(there)}"
        why = has if there else "it is empty"
        raise UsageError(f"{file} holds no samples", why, "curate more, or hold more of them out")
    return found, hash_file(file)


def _start_run(model: ChatModel, spending: Spending, trace: Trace) -> Run:
    """Return a run without documents; its warnings are passed on."""

    def pass_on(event: Event) -> None:
        if isinstance(event, Noted) and event.warning:
            trace.emit(event)

    own = Trace([pass_on], keep=False)
    run = Run(InMemorySources(()), {Role.READER: model}, spending.meter(), own)
    run.tokens = SharedTokenBudget(spending, run.meter)
    return run


async def _ask_all(
    samples: Sequence[Sample], sides: Mapping[str, Run], concurrency: int, trace: Trace
) -> list[ScoredReply]:
    """Return the reply of each side, the base or an adapter, to each sample, with its values."""
    wanted = [(sample, side) for sample in samples for side in sides]
    done = 0

    async def ask(asked: tuple[Sample, str]) -> ScoredReply:
        nonlocal done
        sample, side = asked
        completion, error = Completion(""), ""
        try:
            completion = await ask_sample(sample, sides[side])
        except _SAMPLE_ERRORS as trouble:
            error = f"{type(trouble).__name__}: {trouble}"
        values = await in_thread(score_reply, sample, completion.text)
        done += 1
        what = f"{sample.task} {sample.id}: {side}"
        trace.emit(Progressed("evaluating", done, len(wanted), what))
        return ScoredReply(sample, side, completion, values, error)

    return await map_concurrent(wanted, ask, concurrency)


@dataclass(frozen=True)
class ScoredReply:
    """The reply of a side, "base" or an adapter, to a sample; with an `error` it is empty."""

    sample: Sample
    side: str
    completion: Completion
    values: Mapping[str, float]
    error: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the reply as a line of `replies.jsonl`."""
        return {
            "id": self.sample.id,
            "task": self.sample.task,
            "target": self.sample.target,
            "side": self.side,
            "reply": self.completion.text,
            "values": {name: value for name, value in self.values.items() if name[0] != "_"},
            "finish_reason": self.completion.finish_reason,
            "error": self.error,
            "input_tokens": self.completion.usage.input_tokens,
            "output_tokens": self.completion.usage.output_tokens,
        }


@dataclass(frozen=True)
class Measure:
    """A metric of a task: the base's value and, if there is one, an adapter's.

    A value is None if the metric applies to no reply of that side. `samples` is how many it applies
    to on all sides. `difference` is the adapter's minus the base's over these (`paired_bootstrap`),
    samples of one question or page together; None without an adapter, or for a metric of all
    replies together.
    """

    task: str
    metric: str
    samples: int
    base: float | None
    adapter: str = ""
    adapted: float | None = None
    difference: Difference | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        nothing = {**dict.fromkeys(("difference", "low", "high", "p")), "stars": ""}
        found = self.difference.to_json() if self.difference else nothing
        return {**vars(self), "adapter": self.adapter or None, **found}


@dataclass(frozen=True)
class EvaluationReport:
    """All measures. `models` names each side's model, `samples` counts those of each task.

    `failed` and `cut` count the replies that failed, or reached their maximum length, by side.
    """

    models: Mapping[str, str]
    samples: Mapping[str, int]
    measures: tuple[Measure, ...]
    failed: Mapping[str, int] = field(default_factory=dict)
    cut: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it for programs."""
        return {**vars(self), "measures": [measure.to_json() for measure in self.measures]}


def compare_sides(replies: Sequence[ScoredReply]) -> tuple[Measure, ...]:
    """Return every metric of every task, for each adapter and the base over the same samples."""
    found = []
    for task in STEPS:
        sides: dict[str, dict[str, ScoredReply]] = {}
        for reply in (each for each in replies if each.sample.task == task):
            sides.setdefault(reply.side, {})[reply.sample.id] = reply
        base = sides.pop(BASE, {})
        alone = average_values([each.values for each in base.values()])
        for adapter, its in (sides or {"": base}).items():
            adapted = average_values([each.values for each in its.values()])
            for metric in dict.fromkeys((*alone, *adapted)):
                pairs = [
                    (its[id_].values[metric], reply.values[metric], _find_origin(reply.sample))
                    for id_, reply in base.items()
                    if metric in its[id_].values and metric in reply.values
                ]
                measure = Measure(task, metric, len(pairs) or len(base), alone.get(metric))
                if adapter:
                    measure = replace(measure, adapter=adapter, adapted=adapted.get(metric))
                if adapter and pairs:
                    ours, theirs, origins = zip(*pairs, strict=True)
                    difference = paired_bootstrap(ours, theirs, _SEED, clusters=origins)
                    measure = replace(measure, difference=difference)
                found.append(measure)
    return tuple(found)


def _find_origin(sample: Sample) -> str:
    """Return the question that a sample is of, or its page: such samples are not independent."""
    of = (f"{key} {sample.meta[key]}" for key in ("question", "document") if key in sample.meta)
    return next(of, sample.id)


async def ask_sample(sample: Sample, run: Run) -> Completion:
    """Return the reader's reply to a sample's messages, greedy, as inference would ask.

    It is one call: inference repeats it if the reply cannot be read, this does not. The scope is
    the likelier label if the model gives odds of labels. A skeleton may have as many tokens as its
    prompt: the whole text copied fits.
    """
    model = run.model(Role.READER)
    if sample.task == "scope" and Capability.LABELS in model.capabilities:
        with contextlib.suppress(MissingCapability):  # a server that begins no reply by force
            odds = (await run.labels(sample.prompt, LABELS, forced=FORCED, role=Role.READER)).odds
            likelier = max(odds, key=lambda label: odds[label])
            return Completion(f"{FORCED}{likelier}]", model=model.name)
    messages, step = list(sample.prompt), STEPS[sample.task]
    schema = None if step.schema is None else json_schema_of(step.schema)
    if schema is not None and Capability.STRUCTURED not in model.capabilities:
        messages = with_schema(messages, schema)
    most = step.tokens
    if most is None:
        prompt = await model.count_prompt(messages)
        room = model.context_tokens - prompt if model.context_tokens is not None else prompt
        most = max(1, min(prompt, room))
    return await run.chat(messages, max_tokens=most, schema=schema)
