"""`colligate bench`: strategies compared on data sets, or on your own questions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import bench_options, options
from colligate.cli.display import counted, note, say, say_json, warn
from colligate.cli.failures import ANSWERED, INTERRUPTED

if TYPE_CHECKING:
    from colligate.bench.run import BenchRequest
    from colligate.bench.suites import Suite
app = typer.Typer(help="Compare strategies on data sets, or on your own questions.")


@app.command("run")
def run_bench(
    suite: Annotated[
        str,
        typer.Argument(
            metavar="SUITE",
            help="A suite's name (`colligate bench suites`), the path of one (.toml), or own.",
            show_default=False,
        ),
    ],
    *,
    out: bench_options.Out,
    data: bench_options.Data = None,
    strategies: bench_options.Strategies = None,
    datasets: bench_options.Datasets = None,
    parameters: bench_options.Set = None,
    limit: bench_options.Limit = None,
    seed: bench_options.Seed = 0,
    retry_failed: bench_options.RetryFailed = False,
    questions: bench_options.Questions = None,
    documents: bench_options.Documents = None,
    format: bench_options.Format = "auto",
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: bench_options.Judge = None,
    nli: bench_options.Nli = None,
    qa: bench_options.Qa = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    config: options.Config = None,
    indexes: bench_options.Indexes = None,
    replies: bench_options.Replies = None,
    traces: bench_options.Traces = True,
    concurrency: bench_options.Concurrency = 1,
    max_tokens_total: bench_options.MaxTokensTotal = None,
    timeout: bench_options.Timeout = None,
    dry_run: bench_options.DryRun = False,
    as_json: options.AsJson = False,
) -> int:
    """Ask strategies the questions of a suite, and measure the answers.

    Every answer is a row on disk as soon as it is given. A run that was stopped, by whatever, goes
    on with the same command; what has a row is not asked again. An answer that fails is a row
    with its error, and counts as wrong.

    Exit status: 0 all rows are there, 2 wrong usage, 1 a fault.
    """
    from colligate.bench.participants import ModelNames
    from colligate.bench.run import BenchRequest
    from colligate.settings import Settings

    settings = Settings.load(config).override(
        reader=model,
        worker=worker_model,
        scorer=scorer,
        judge=judge,
        embedder=embedder,
        reranker=reranker,
    )
    arguments = {
        "suite": suite,
        "model": model,
        "worker_model": worker_model,
        "scorer": scorer,
        "judge": judge,
        "nli": nli,
        "qa": qa,
        "embedder": embedder,
        "reranker": reranker,
        "strategies": strategies,
        "datasets": datasets,
        "set": parameters,
        "limit": limit,
        "seed": seed,
        "concurrency": concurrency,
        "timeout": timeout,
        "max_tokens_total": max_tokens_total,
        "retry_failed": retry_failed,
        "replies": str(replies) if replies is not None else None,
    }
    request = BenchRequest(
        suite=_suite(suite, data, questions, documents, format),
        data=data or Path(),
        out=out,
        names=ModelNames(settings, nli=nli, qa=qa),
        strategies=_names(strategies),
        datasets=_names(datasets),
        settings=parameters or (),
        limit=limit,
        seed=seed,
        concurrency=concurrency,
        max_tokens_total=max_tokens_total,
        timeout=timeout,
        retry_failed=retry_failed,
        traces=traces,
        indexes=indexes,
        replies=replies,
        arguments={name: value for name, value in arguments.items() if value is not None},
    )
    return _estimate(request, as_json) if dry_run else _run(request, as_json)


def _suite(
    name: str, data: Path | None, questions: Path | None, documents: Path | None, format: str
) -> Suite:
    from colligate.bench.suites import OWN, make_own_suite, read_suite
    from colligate.errors import MissingPath, UsageError

    if name != OWN:
        if questions is not None or documents is not None:
            raise UsageError("--questions and --documents are for the suite own", "", "leave them")
        if data is None:
            raise UsageError("the folder of data is not named", "", "give --data DIR")
        return read_suite(name)
    if questions is None:
        why = "the suite own asks your questions"
        raise UsageError("no questions are named", why, "give --questions FILE")
    for path in (questions, documents):
        if path is not None and not path.exists():
            raise MissingPath(f"there is no {path}", "", "check the path")
    return make_own_suite(questions, documents, format)


def _names(given: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())


def _estimate(request: BenchRequest, as_json: bool) -> int:
    from colligate.bench.run import estimate_run

    expected = estimate_run(request)
    if as_json:
        say_json(expected.to_json())
    else:
        say(str(expected))
    return ANSWERED


def _run(request: BenchRequest, as_json: bool) -> int:
    from colligate.bench.run import run_suite
    from colligate.cli.bench_results import collect_means, show_results
    from colligate.cli.failures import run
    from colligate.cli.progress import watching
    from colligate.core.events import Event, Progressed
    from colligate.errors import ColligateError

    last: Progressed | None = None
    with watching(sys.stderr) as watcher:

        def see(event: Event) -> None:
            nonlocal last
            if isinstance(event, Progressed) and event.phase == "answering":
                last = event
            watcher.see(event)

        try:
            done = run(run_suite(request, see))
        except (KeyboardInterrupt, ColligateError, OSError) as error:
            interrupted = isinstance(error, KeyboardInterrupt)
            if last or interrupted:
                made = counted(last.done if last else 0, "new row")
                note(f"stopped; {made} in {request.out}; the same command goes on")
            if not interrupted:
                raise
            return INTERRUPTED
    if as_json:
        say_json(collect_means(done))
    else:
        show_results(done)
        note(f"{counted(done.asked, 'new row')}, {done.tokens:,} tokens; {request.out}")
        note(f"colligate bench report {request.out} writes the report")
    failed = [row for row in done.rows.values() if row.outcome.error]
    if failed:
        first = failed[0]
        why = f"{first.question} of {first.dataset}, {first.strategy}: {first.outcome.error}"
        warn(f"{counted(len(failed), 'answer')} failed and counts as wrong, such as {why}")
    lacking = [row for row in done.rows.values() if row.unmeasured]
    if lacking:
        group, why = next(iter(lacking[0].unmeasured.items()))
        rows = counted(len(lacking), "row")
        warn(f"metrics are missing in {rows}, such as {group} ({why}); the same command takes them")
    return ANSWERED


@app.command("compare")
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            metavar="DIR [DIR]",
            help="Two runs, strategy by strategy; or one, whose strategies are compared.",
            show_default=False,
        ),
    ],
    *,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A metric, as often as you like. Default: what says most of each data set.",
            show_default=False,
        ),
    ] = None,
    strategies: Annotated[
        str | None,
        typer.Option(
            metavar="A,B",
            help="The strategies to compare. Default: of two runs all that both asked, of one its "
            "first with each other.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Draws the samples. Default: the first run's.", show_default=False
        ),
    ] = None,
    as_json: options.AsJson = False,
) -> int:
    """Say by how much strategies differ over the questions that both were asked.

    Mean difference, its 95% interval and two-sided p of the paired bootstrap (10,000 samples).
    * is p below .05, ** below .01, *** below .001; no correction is made for comparing often.
    """
    from colligate.bench.compare import compare_runs
    from colligate.cli.bench_results import show_comparison
    from colligate.errors import UsageError

    if len(runs) > 2:
        raise UsageError(f"{len(runs)} runs are named", "", "compare two, or the strategies of one")
    found = compare_runs(*runs, metrics=metric or (), strategies=_names(strategies), seed=seed)
    if as_json:
        say_json([each.to_json() for each in found])
    else:
        show_comparison(found)
    return ANSWERED


@app.command("report")
def report(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A run's folder.", show_default=False)],
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The page; the Markdown stands beside it. Default: report.html in DIR.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Write a run's report: one HTML page that needs nothing else, and the same as Markdown."""
    from colligate.bench.report import write_report

    for file in write_report(run, out):
        say(str(file))
    return ANSWERED


@app.command("suites")
def suites(as_json: options.AsJson = False) -> int:
    """List the suites: a table or figure of a paper each."""
    from colligate.bench.suites import list_suites, read_suite
    from colligate.cli.display import table

    every = [read_suite(name) for name in list_suites()]
    if as_json:
        say_json(
            [
                {
                    "name": each.name,
                    "title": each.title,
                    "paper": each.paper,
                    "about": each.about,
                    "datasets": [dataset.name for dataset in each.datasets],
                    "strategies": [method.name for method in each.strategies],
                }
                for each in every
            ]
        )
        return ANSWERED
    rows = [
        (each.name, each.title, ", ".join(dataset.name for dataset in each.datasets))
        for each in every
    ]
    say(table(["suite", "what it is", "data sets"], rows))
    return ANSWERED
