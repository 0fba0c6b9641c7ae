"""`colligate train`: samples for the adapters of the papers, training, and what it is worth."""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from colligate.cli import options, train_options
from colligate.cli.display import counted, note, say_json, warn
from colligate.cli.failures import ANSWERED, FAULT, INTERRUPTED
from colligate.cli.train_fit import fit, recipes

if TYPE_CHECKING:
    from pathlib import Path

    from colligate.core.events import Listener
    from colligate.training.curation import Curation
    from colligate.training.samples import Card
T = TypeVar("T")

_OF_ITEMS = ("curating", "evaluating")  # phases in which something is kept

app = typer.Typer(
    help="Train adapters: RDR2's router, LongRefiner's three tasks, DualRAG's three roles."
)


class System(StrEnum):
    """What samples can be curated for."""

    RDR2 = "rdr2"
    LONGREFINER = "longrefiner"
    DUALRAG = "dualrag"


@app.command("curate")
def curate(
    system: Annotated[System, typer.Argument(help="Whose steps are trained.", show_default=False)],
    *,
    out: train_options.Out,
    teacher: train_options.Teacher = None,
    questions: train_options.Questions = None,
    format: train_options.Format = "auto",
    library: train_options.Library = None,
    corpus: train_options.Corpus = None,
    tasks: train_options.Tasks = None,
    limit: train_options.Limit = None,
    seed: train_options.Seed = 0,
    held_out: train_options.HeldOut = 0.1,
    parameters: train_options.CurateSet = None,
    judge: train_options.Judge = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    config: options.Config = None,
    concurrency: train_options.Concurrency = 1,
    max_tokens_total: train_options.MaxTokensTotal = None,
    timeout: train_options.Timeout = None,
    retry_failed: train_options.RetryFailed = False,
    as_json: options.AsJson = False,
) -> int:
    """Have a teacher make samples to learn from, with a data card.

    What each question or document gives is on disk as soon as it is done. A curation that was
    stopped, by whatever, goes on with the same command. In --out stand train.jsonl and
    held_out.jsonl, in the form of messages that TRL and LLaMA-Factory read.

    Exit status: 0 all is done, 2 wrong usage, 1 a fault.
    """
    from colligate.bench.participants import ModelNames
    from colligate.errors import UsageError
    from colligate.settings import Settings
    from colligate.training.curation import Curation

    # A reader of the environment or the file was not named to be learnt from.
    settings = replace(Settings.load(config), reader=None).override(
        reader=teacher, judge=judge, embedder=embedder, reranker=reranker
    )
    if system is not System.DUALRAG:
        if judge is not None:
            raise UsageError("--judge does nothing here", f"{system} has no answers to judge")
        settings = replace(settings, judge=None)
    arguments = {
        "system": system.value,
        "teacher": teacher,
        "questions": _text(questions),
        "format": format,
        "library": _text(library),
        "corpus": _text(corpus),
        "tasks": tasks,
        "limit": limit,
        "seed": seed,
        "held_out": held_out,
        "set": parameters,
        "judge": judge,
        "embedder": embedder,
        "reranker": reranker,
        "concurrency": concurrency,
        "max_tokens_total": max_tokens_total,
        "timeout": timeout,
        "retry_failed": retry_failed or None,
    }
    request = Curation(
        out=out,
        questions=questions,
        format=format,
        library=library,
        corpus=corpus,
        names=ModelNames(settings),
        tasks=_names(tasks),
        limit=limit,
        seed=seed,
        held_out=held_out,
        concurrency=concurrency,
        max_tokens_total=max_tokens_total,
        timeout=timeout,
        retry_failed=retry_failed,
        settings=tuple(parameters or ()),
        arguments=_given(arguments),
    )
    card = _watched(lambda see: _curating(system)(request, see), out)
    if card is None:
        return INTERRUPTED
    if as_json:
        say_json(card.to_json())
    else:
        from colligate.cli.train_results import show_card

        show_card(card)
        note(f"{card.total('train') + card.total('held_out'):,} samples; {out}")
    if failed := card.items["failed"]:
        warn(f"{counted(failed, 'item')} failed; the same command with --retry-failed tries again")
        if failed == card.items["done"]:
            return FAULT
    return ANSWERED


def _curating(system: System) -> Callable[[Curation, Listener], Coroutine[Any, Any, Card]]:
    match system:
        case System.RDR2:
            from colligate.training.rdr2 import curate_rdr2

            return curate_rdr2
        case System.LONGREFINER:
            from colligate.training.longrefiner import curate_longrefiner

            return curate_longrefiner
        case System.DUALRAG:
            from colligate.training.dualrag import curate_dualrag

            return curate_dualrag


app.command("fit")(fit)
app.command("recipes")(recipes)


@app.command("evaluate")
def evaluate(
    data: train_options.Evaluated,
    *,
    model: train_options.Model,
    out: train_options.Out,
    adapter: train_options.Adapter = None,
    tasks: train_options.EvaluatedTasks = None,
    limit: train_options.EvaluatedLimit = None,
    split: train_options.Split = "held_out",
    seed: train_options.EvaluatedSeed = 0,
    config: options.Config = None,
    concurrency: train_options.Concurrency = 4,
    max_tokens_total: train_options.MaxTokensTotal = None,
    as_json: options.AsJson = False,
) -> int:
    """Compare adapters with their base on samples that were held out of training.

    Each sample is asked as inference asks, at temperature 0, and its reply measured as its paper
    does. Differences come with their 95% interval and two-sided p of the paired bootstrap (10,000
    samples); * is p below .05, ** below .01, *** below .001. Replies are kept: an evaluation that
    was stopped goes on, and more samples or adapters ask only for what is new.

    Exit status: 0 all is measured, 2 wrong usage, 1 a fault.
    """
    from colligate.bench.participants import ModelNames
    from colligate.settings import Settings
    from colligate.training.evaluation import Evaluation
    from colligate.training.evaluation import evaluate as carry_out

    arguments = {
        "model": model,
        "adapter": adapter,
        "tasks": tasks,
        "limit": limit,
        "split": split,
        "seed": seed,
    }
    request = Evaluation(
        data=data,
        out=out,
        names=ModelNames(Settings.load(config).override(reader=model)),
        adapters=tuple(adapter or ()),
        tasks=_names(tasks),
        split=split,
        limit=limit,
        seed=seed,
        concurrency=concurrency,
        max_tokens_total=max_tokens_total,
        arguments=_given(arguments),
    )
    report = _watched(lambda see: carry_out(request, see), out)
    if report is None:
        return INTERRUPTED
    if as_json:
        say_json(report.to_json())
    else:
        from colligate.cli.train_results import show_report

        show_report(report)
        note(f"{counted(sum(report.samples.values()), 'sample')}; {out}")
    for side, count in report.cut.items():
        note(f"{side}: {counted(count, 'answer')} cut at the most tokens that inference allows")
    for side, count in report.failed.items():
        warn(f"{side}: {counted(count, 'answer')} failed and counted as empty")
    return ANSWERED


def _watched(work: Callable[[Listener], Coroutine[Any, Any, T]], out: Path) -> T | None:
    """Do it while a person looks on; None if it was interrupted, which is said."""
    from colligate.cli.failures import run
    from colligate.cli.progress import watching
    from colligate.core.events import Event, Progressed
    from colligate.errors import ColligateError

    begun = False
    with watching(sys.stderr) as watcher:

        def see(event: Event) -> None:
            nonlocal begun
            begun = begun or (isinstance(event, Progressed) and event.phase in _OF_ITEMS)
            watcher.see(event)

        try:
            return run(work(see))
        except (KeyboardInterrupt, ColligateError, OSError) as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if begun or interrupted:
                note(f"stopped; what was done is in {out}; the same command goes on")
            if not interrupted:
                raise
            return None


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _given(arguments: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}
