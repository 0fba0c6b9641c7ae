"""`colligate bench`: strategies compared on data sets, or on your own questions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, INTERRUPTED, command
from colligate.cli.display import make_table, note, print_result, warn
from colligate.cli.options import LIMITS, MODELS, OUTPUT, argument, option
from colligate.lab.commands import ItemTimeout, collect_given, pick, run_resumable, split_names

if TYPE_CHECKING:
    from colligate.lab.bench.compare import MetricComparison
    from colligate.lab.bench.run import SuiteRun
    from colligate.lab.bench.suites import Suite
    from colligate.lab.bench.tables import RunResults

app = typer.Typer(help="Compare strategies on data sets, or on your own questions.")

_WHAT = "What is asked"
_OWN = "Your own questions (SUITE is own)"


@dataclass(frozen=True)
class BenchOptions:
    """The options of `bench run` that no other command has."""

    out: Annotated[
        Path, option("The run's folder; a part of it that is there is kept.", OUTPUT, metavar="DIR")
    ]
    data: Annotated[
        Path | None, option("The folder of the data sets' files.", _WHAT, metavar="DIR")
    ] = None
    strategies: Annotated[
        str | None,
        option("Strategies, of the suite or any. Default: the suite's.", _WHAT, metavar="A,B,C"),
    ] = None
    datasets: Annotated[
        str | None, option("Data sets of the suite. Default: the suite's.", _WHAT, metavar="A,B,C")
    ] = None
    parameters: Annotated[
        list[str] | None,
        option(
            "Set a parameter of all strategies that have it, as preset=paper; may be repeated.",
            _WHAT,
            "--set",
            metavar="NAME=VALUE",
        ),
    ] = None
    limit: Annotated[
        int | None,
        option("Questions of each data set. Default: the suite's.", _WHAT, metavar="N", min=1),
    ] = None
    seed: Annotated[
        int, option("The seed that draws the questions.", _WHAT, min=0, default=True)
    ] = 0
    retry_failed: Annotated[
        bool, option("Ask again what failed before.", _WHAT, "--retry-failed")
    ] = False
    questions: Annotated[
        Path | None,
        option(
            "CSV or JSON Lines: question, and optionally answer, documents, gold, answerable, id.",
            _OWN,
            metavar="FILE",
        ),
    ] = None
    documents: Annotated[
        Path | None, option("The folder of the documents to ask over.", _OWN, metavar="DIR")
    ] = None
    format: Annotated[
        str, option("The format of the questions (docs/datasets.md).", _OWN, default=True)
    ] = "auto"
    judge: Annotated[
        str | None,
        option(
            "The model that judges answers. Default: COLLIGATE_JUDGE, then the settings file, "
            "then none.",
            MODELS,
        ),
    ] = None
    nli: Annotated[
        str | None, option("The entailment model: a T5 by name.", MODELS, metavar="NAME")
    ] = None
    qa: Annotated[
        str | None, option("The reader of Disambig-F1: one for SQuAD 2.", MODELS, metavar="NAME")
    ] = None
    chunker: options.Chunker = None
    indexes: Annotated[
        Path | None,
        option("Indexed corpora, which runs can share. Default: in --out.", OUTPUT, metavar="DIR"),
    ] = None
    replies: Annotated[
        Path | None,
        option(
            "Keep the models' replies in a file, which runs can share. Rows still count their "
            "tokens, but not their seconds.",
            OUTPUT,
            metavar="FILE",
        ),
    ] = None
    concurrency: Annotated[
        int,
        option(
            "Answers in progress at once; their seconds then include those of others.",
            LIMITS,
            metavar="N",
            min=1,
            default=True,
        ),
    ] = 1
    max_tokens_total: options.MaxTokensTotal = None
    timeout: ItemTimeout = None


@command(app, "run")
def bench_run_command(
    suite: Annotated[
        str,
        argument(
            "A suite's name (`colligate bench suites`), the path of a suite (.toml), or own.",
            "SUITE",
        ),
    ],
    *,
    bench: BenchOptions,
    models: options.ModelOptions,
) -> int:
    """Ask strategies the questions of a suite, and measure the answers.

    Every answer is written to disk as soon as it is given. The same command resumes a run that
    was stopped; what has a row is not asked again. An answer that fails is a row with its error
    and counts as wrong.

    Exit status: 0 all rows are there, 2 wrong usage, 1 a fault.

    Examples:
        colligate bench run own --questions q.csv --documents contracts/ --out run
        colligate bench run duquad-table1 --data data/ --out runs/table1 --limit 20
    """
    from colligate.lab.bench.participants import ModelNames
    from colligate.lab.bench.run import BenchRequest, run_suite
    from colligate.lab.bench.tables import RunResults

    settings = models.engine(judge=bench.judge, chunker=bench.chunker).named
    given = (collect_given(each, *vars(each)) for each in (models, bench))
    arguments = {"suite": suite, **{k: v for each in given for k, v in each.items()}}
    chosen = {
        "suite": _read_suite(suite, bench),
        "data": bench.data or Path(),
        "names": ModelNames(settings, nli=bench.nli, qa=bench.qa),
        "strategies": split_names(bench.strategies),
        "datasets": split_names(bench.datasets),
        "settings": bench.parameters or (),
        "reader": models.reader,
        "retriever": models.retriever,
        "arguments": arguments,
    }
    request = BenchRequest(**{**pick(bench, BenchRequest), **chosen})
    done = run_resumable(lambda see: run_suite(request, see), bench.out)
    if done is None:
        return INTERRUPTED
    show_results(done, RunResults(bench.out))
    _note_problems(done, bench)
    return ANSWERED


def _read_suite(name: str, bench: BenchOptions) -> Suite:
    from colligate.errors import MissingPath, UsageError
    from colligate.lab.bench.suites import OWN, make_own_suite, read_suite

    if name != OWN:
        if bench.questions is not None or bench.documents is not None:
            what = "--questions and --documents are only for the suite own"
            raise UsageError(what, f"the suite is {name}", "leave them out")
        if bench.data is None:
            raise UsageError("the folder of the data is missing", "", "give --data DIR")
        return read_suite(name)
    if bench.questions is None:
        why = "the suite own asks your questions"
        raise UsageError("the questions are missing", why, "give --questions FILE")
    for path in (bench.questions, bench.documents):
        if path is not None and not path.exists():
            raise MissingPath(f"{path} does not exist", "", "check the path")
    return make_own_suite(bench.questions, bench.documents, bench.format)


def _note_problems(done: SuiteRun, bench: BenchOptions) -> None:
    from colligate.core.events import pluralize

    note(f"{pluralize(done.asked, 'new row')}, {done.tokens:,} tokens; {bench.out}")
    note(f"colligate bench report {bench.out} writes the report")
    failed = [row for row in done.rows.values() if row.outcome.error]
    if failed:
        first = failed[0]
        why = f"{first.question} of {first.dataset}, {first.strategy}: {first.outcome.error}"
        warn(f"{pluralize(len(failed), 'answer')} failed, counted as wrong, such as {why}")
    lacking = [row for row in done.rows.values() if row.unmeasured]
    if lacking:
        group, why = next(iter(lacking[0].unmeasured.items()))
        rows = pluralize(len(lacking), "row")
        warn(f"metrics are missing in {rows}, such as {group} ({why}); the same command adds them")


@command(app, "compare")
def bench_compare_command(
    runs: Annotated[
        list[Path],
        argument(
            "Two runs, compared strategy by strategy; or one run, to compare its strategies.",
            "DIR [DIR]",
        ),
    ],
    *,
    metric: Annotated[
        list[str] | None,
        option("A metric; may be repeated. Default: the main one.", _WHAT, metavar="NAME"),
    ] = None,
    strategies: Annotated[
        str | None,
        option(
            "Strategies to compare. Default: those of both runs; of one its first with the others.",
            _WHAT,
            metavar="A,B",
        ),
    ] = None,
) -> int:
    """Compare strategies over the questions that both were asked.

    Mean difference, its 95% interval by the paired bootstrap (10,000 samples), and two-sided p: the
    larger of the bootstrap's and that of an exact test.
    * is p below .05, ** below .01, *** below .001; p is not corrected for many comparisons.

    Examples:
        colligate bench compare runs/a runs/b
        colligate bench compare runs/a --strategies duquad,retrieve-read
    """
    from colligate.errors import UsageError
    from colligate.lab.bench.compare import compare_runs

    if len(runs) > 2:
        raise UsageError(
            f"expected one or two runs, got {len(runs)}", "", "give one or two folders"
        )
    names = split_names(strategies)
    show_comparison(compare_runs(*runs, metrics=metric or (), strategies=names))
    return ANSWERED


@command(app, "report")
def bench_report_command(
    run: Annotated[Path, argument("A run's folder.", "DIR")],
    *,
    out: Annotated[
        Path | None,
        option(
            "The report; default: report.md in DIR. Its figures are beside it.",
            OUTPUT,
            metavar="FILE",
        ),
    ] = None,
) -> int:
    """Write a run's report: Markdown, with its figures as SVG files.

    Examples:
        colligate bench report runs/table1
    """
    from colligate.lab.bench.report import write_report

    print_result(str(write_report(run, out)))
    return ANSWERED


@command(app, "suites")
def bench_suites_command() -> int:
    """List the suites; each is a table or figure of a paper.

    Examples:
        colligate bench suites
    """
    from colligate.lab.bench.suites import list_suites, read_suite

    suites = [read_suite(name) for name in list_suites()]
    rows = [(s.name, s.title, ", ".join(each.name for each in s.datasets)) for s in suites]
    print_result(make_table(["suite", "what it is", "data sets"], rows))
    return ANSWERED


@command(app, "convert")
def bench_convert_command(
    file: Annotated[Path, argument("A data set as published.", "FILE")],
    *,
    out: Annotated[
        Path, option("The file to write; packed if it ends in .gz.", OUTPUT, metavar="FILE")
    ],
    corpus: Annotated[
        Path | None,
        option("Write the documents that the questions bring there.", OUTPUT, metavar="FILE"),
    ] = None,
    format: Annotated[
        str,
        option("The format (docs/datasets.md); passages if FILE is a corpus.", _WHAT, default=True),
    ] = "auto",
) -> int:
    """Write a data set in the plain form, or its corpus as a file of passages.

    Examples:
        colligate bench convert tatdqa.jsonl --out questions.jsonl --corpus corpus.jsonl
    """
    from colligate.core.events import pluralize
    from colligate.errors import UsageError
    from colligate.lab.bench.datasets.convert import convert_passages, convert_questions

    if format == "passages":
        if corpus is not None:
            raise UsageError("--corpus is for questions", f"{file} is a corpus", "leave it out")
        note(f"{pluralize(convert_passages(file, out), 'passage')}; {out}")
        return ANSWERED
    questions, documents = convert_questions(file, out, format=format, corpus=corpus)
    note(f"{pluralize(questions, 'question')}; {out}")
    if corpus is not None:
        note(f"{pluralize(documents, 'document')}; {corpus}")
    return ANSWERED


def show_results(done: SuiteRun, results: RunResults) -> None:
    """Print a table for each data set: the report's columns that were measured, or main ones."""
    for asked in done.plan.datasets:
        name, cells = asked.dataset.name, []
        methods = [each.method for each in done.plan.entries]
        found = [results.means(name, method.name) for method in methods]
        columns = [each for each in results.columns if each.dataset == name]
        columns = [
            each for each in columns if any(means.get(each.metric) is not None for means in found)
        ]
        columns = columns or results.main_columns(name)  # many suites have those of groups alone
        for method, means in zip(methods, found, strict=True):
            values = [_format_scaled(means.get(each.metric), each.scale) for each in columns]
            rows = results.rows_of(name, method.name)
            failed = sum(bool(row.error) for row in rows)
            cells.append((method.label, *values, str(len(rows)), str(failed or "")))
        labels = [each.label for each in columns]
        print_result(make_table([name, *labels, "questions", "failed"], cells))


def show_comparison(found: Sequence[MetricComparison]) -> None:
    """Print a line for each comparison."""
    rows = [
        (
            each.dataset,
            each.metric,
            each.first,
            each.second,
            _format_scaled(each.means[0], 1),
            _format_scaled(each.means[1], 1),
            _format(each.difference.mean, "+"),
            f"{_format(each.difference.low, '+')} to {_format(each.difference.high, '+')}",
            f"{each.difference.p:.4f}",
            each.difference.stars,
            str(each.difference.questions),
        )
        for each in found
    ]
    headings = ["data set", "metric", "first", "second", "mean", "mean", "difference"]
    print_result(make_table([*headings, "95% interval", "p", "", "questions"], rows))
    from colligate.core.events import pluralize

    for each in found:
        for side, count in zip((each.first, each.second), each.missing, strict=True):
            if count:
                questions = pluralize(count, "question")
                note(f"{each.dataset}, {each.metric}: {side} lacks {questions} of the other side")


def _format_scaled(value: float | None, scale: float) -> str:
    return "" if value is None else _format(value * scale)


def _format(value: float, sign: str = "") -> str:
    """Return a number with four figures; of thousands all before the point."""
    return f"{value:{sign},.0f}" if abs(value) >= 1000 else f"{value:{sign}.4g}"
