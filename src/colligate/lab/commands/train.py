"""`colligate train`: samples for the adapters of the papers, training, and evaluation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, FAULT, INTERRUPTED, command
from colligate.cli.display import make_table, note, print_result, warn
from colligate.cli.options import LIMITS, MODELS, OUTPUT, argument, option
from colligate.lab.commands import ItemTimeout, collect_given, pick, run_resumable, split_names

if TYPE_CHECKING:
    from colligate.lab.training.evaluation import EvaluationReport
    from colligate.lab.training.samples import Card

app = typer.Typer(help="Train adapters for RDR2, LongRefiner and DualRAG, rerankers and verifiers.")

_DATA = "Data"

Out = Annotated[
    Path,
    option(
        "The folder of the results. If it holds a part of the same work, the work is resumed.",
        OUTPUT,
        metavar="DIR",
    ),
]
Concurrency = Annotated[
    int, option("How many calls are made at once.", LIMITS, metavar="N", min=1, default=True)
]
Set = Annotated[
    list[str] | None,
    option(
        "Replace a parameter of the system, or a number of the training, such as epochs=2; may be "
        "repeated (docs/training.md).",
        _DATA,
        "--set",
        metavar="NAME=VALUE",
    ),
]
Tasks = Annotated[str | None, option("The tasks. Default: all.", _DATA, metavar="A,B")]
Limit = Annotated[
    int | None,
    option(
        "The number of questions or documents, or of samples of each task. Default: all.",
        _DATA,
        metavar="N",
        min=1,
    ),
]


@dataclass(frozen=True)
class CurateOptions:
    """The options of `train curate` that no other command has."""

    out: Out
    teacher: Annotated[
        str | None,
        option(
            "The model whose replies are learnt: bundled, gguf:PATH, hf:NAME or "
            "openai:MODEL\\[@URL]; longrefiner's structuring needs none.",
            MODELS,
            metavar="MODEL",
        ),
    ] = None
    questions: Annotated[
        Path | None,
        option(
            "The questions, in any format of docs/datasets.md; longrefiner's structuring needs "
            "none.",
            _DATA,
            metavar="FILE",
        ),
    ] = None
    format: Annotated[
        str, option("The format of the questions (docs/datasets.md).", _DATA, default=True)
    ] = "auto"
    corpus: Annotated[
        Path | None,
        option(
            "Ask over a file of passages or a folder of documents, which is indexed in --out. "
            "Default: over the documents of each question.",
            _DATA,
            metavar="PATH",
        ),
    ] = None
    tasks: Tasks = None
    limit: Limit = None
    seed: Annotated[
        int,
        option("The seed that draws the questions and those held out.", _DATA, min=0, default=True),
    ] = 0
    held_out: Annotated[
        float,
        option(
            "The share of questions, or documents, whose samples are kept for evaluation.",
            _DATA,
            metavar="SHARE",
            min=0.0,
            max=0.9,
            default=True,
        ),
    ] = 0.1
    parameters: Set = None
    judge: Annotated[
        str | None,
        option(
            "The model that decides which of dualrag's answers are right. Default: "
            "COLLIGATE_JUDGE, then the settings file, then the words of the right answer.",
            MODELS,
        ),
    ] = None
    embedder: options.Embedder = None
    reranker: options.Reranker = None
    config: options.Config = None
    concurrency: Concurrency = 1
    max_tokens_total: options.MaxTokensTotal = None
    timeout: ItemTimeout = None
    retry_failed: Annotated[
        bool, option("Do again what failed before.", _DATA, "--retry-failed")
    ] = False


@command(app, "curate")
def train_curate_command(
    system: Annotated[
        Literal["rdr2", "longrefiner", "dualrag"],
        typer.Argument(help="The system whose steps are trained.", show_default=False),
    ],
    *,
    given: CurateOptions,
) -> int:
    """Have a teacher make training samples, with a data card.

    The samples of each question or document are written to disk as soon as they are made. The
    same command resumes a curation that was stopped. --out then has train.jsonl and
    held_out.jsonl, as messages that TRL and LLaMA-Factory read.

    Exit status: 0 all is done, 2 wrong usage, 1 a fault.

    Examples:
        colligate train curate rdr2 --questions q.jsonl --corpus wiki/ --teacher bundled --out made/
    """
    from colligate.core.events import pluralize
    from colligate.errors import UsageError
    from colligate.lab.bench.participants import ModelNames
    from colligate.lab.training.curation import Curation
    from colligate.lab.training.samples import README_FILE
    from colligate.settings import Settings

    # A reader that the environment or the file names is not a teacher.
    settings = replace(Settings.load(given.config), reader=None).override(
        reader=given.teacher, judge=given.judge, embedder=given.embedder, reranker=given.reranker
    )
    if system != "dualrag":
        if given.judge is not None:
            raise UsageError("--judge has no effect here", f"{system} has no answers to judge")
        settings = replace(settings, judge=None)
    chosen = {
        "names": ModelNames(settings),
        "tasks": split_names(given.tasks),
        "settings": tuple(given.parameters or ()),
        "arguments": {"system": system, **collect_given(given, *vars(given))},
    }
    request = Curation(**{**pick(given, Curation), **chosen})
    curate = getattr(import_module(f"colligate.lab.training.{system}"), f"curate_{system}")
    card: Card | None = run_resumable(lambda see: curate(request, see), given.out)
    if card is None:
        return INTERRUPTED
    print_result(str(given.out / README_FILE))
    note(f"{card.total('train') + card.total('held_out'):,} samples")
    failed = card.items["failed"]
    if failed:
        items = pluralize(failed, "item")
        warn(f"{items} failed; the same command with --retry-failed tries again")
    return FAULT if failed and failed == card.items["done"] else ANSWERED


@command(app, "fit")
def train_fit_command(
    recipe: Annotated[
        str,
        argument("A recipe's name (docs/training.md), or the path of a recipe (.toml).", "RECIPE"),
    ],
    *,
    data: Annotated[Path, option("A folder of curated samples.", _DATA, "--data", metavar="DIR")],
    base: Annotated[str, option("The model to train: hf:NAME-OR-PATH.", MODELS, metavar="MODEL")],
    out: Out,
    parameters: Set = None,
) -> int:
    """Train an adapter, or a whole model, on curated samples (extra `train`).

    The same command resumes a training that was stopped, from its last checkpoint; Ctrl-C saves
    the current step first. --out then has the adapter, the record fit.json, and the curve as JSON
    lines. One GPU is used, or the processor.

    Exit status: 0 trained, 2 wrong usage, 1 a fault, 130 interrupted.

    Examples:
        colligate train fit rdr2-router --data made/ --base hf:Qwen/Qwen3-4B --out router/
    """
    from colligate.cli.progress import watch_run
    from colligate.lab.training.fitting import fit

    # Not on an event loop: training is one long piece of work in the main thread.
    with watch_run() as watcher:
        fitted = fit(recipe, data, base, out, parameters or (), watcher.see)
    status = ANSWERED if fitted.finished else INTERRUPTED
    rows = [
        (name, f"{value:.4g}" if isinstance(value, float) else str(value))
        for name, value in vars(fitted).items()
        if value is not None
    ]
    print_result(make_table(["", "value"], rows))
    if not fitted.finished:
        note(f"stopped after step {fitted.step:,} of {fitted.steps:,}; the same command resumes")
    return status


@command(app, "head")
def train_head_command(
    kind: Annotated[
        Literal["reranker", "verifier", "kinds"],
        typer.Argument(help="What is trained.", show_default=False),
    ],
    *,
    data: Annotated[
        Path,
        option(
            "The folder of labelled pairs: train.jsonl, and held_out.jsonl to judge by "
            "(docs/training.md).",
            _DATA,
            "--data",
            metavar="DIR",
        ),
    ],
    out: Out,
    parameters: Set = None,
) -> int:
    """Train a reranker, a verifier or a sorter of questions on labelled texts (extra `train`).

    Writes an int8 ONNX model with its tokenizer into --out, for `--reranker onnx:DIR` or `--check
    onnx:DIR`. Ctrl-C saves the current step and stops; the same command resumes.

    Exit status: 0 trained, 2 wrong usage, 1 a fault, 130 interrupted.

    Examples:
        colligate train head reranker --data pairs/ --out reranker/
    """
    from colligate.cli.progress import watch_run
    from colligate.lab.training.heads import train_head

    with watch_run() as watcher:
        finished = train_head(kind, data, out, parameters or (), watcher.see)
    if not finished:
        note("stopped; the same command resumes")
        return INTERRUPTED
    print_result(str(out / "model.onnx"))
    return ANSWERED


@dataclass(frozen=True)
class EvaluateOptions:
    """The options of `train evaluate` that no other command has."""

    model: Annotated[
        str, option("The base that the adapters are compared with.", MODELS, metavar="MODEL")
    ]
    out: Out
    adapter: Annotated[
        list[str] | None,
        option(
            "An adapter; may be repeated: a folder, a hub name, or the name that the base's server "
            "gives it.",
            MODELS,
            metavar="DIR",
        ),
    ] = None
    tasks: Tasks = None
    limit: Limit = None
    config: options.Config = None
    concurrency: Concurrency = 4
    max_tokens_total: options.MaxTokensTotal = None


@command(app, "evaluate")
def train_evaluate_command(
    data: Annotated[Path, argument("A folder of curated samples.", "DIR")],
    *,
    given: EvaluateOptions,
) -> int:
    """Compare adapters with their base on samples that were held out of training.

    Each sample is asked as inference asks it, at temperature 0, and its reply is measured as in
    the paper. Differences come with their 95% interval by the paired bootstrap (10,000 samples)
    and two-sided p, the larger of the bootstrap's and that of an exact test; * is p below .05, **
    below .01, *** below .001. Replies are kept: the same command resumes, and with more samples or
    adapters only the new ones are asked.

    Exit status: 0 all is measured, 2 wrong usage, 1 a fault.

    Examples:
        colligate train evaluate made/ --model hf:Qwen/Qwen3-4B --adapter router/ --out found/
    """
    from colligate.core.events import pluralize
    from colligate.lab.bench.participants import ModelNames
    from colligate.lab.training.evaluation import Evaluation, evaluate
    from colligate.settings import Settings

    chosen = {
        "data": data,
        "names": ModelNames(Settings.load(given.config).override(reader=given.model)),
        "adapters": tuple(given.adapter or ()),
        "tasks": split_names(given.tasks),
        "arguments": collect_given(given, *vars(given)),
    }
    request = Evaluation(**{**pick(given, Evaluation), **chosen})
    report = run_resumable(lambda see: evaluate(request, see), given.out)
    if report is None:
        return INTERRUPTED
    show_report(report)
    note(f"{pluralize(sum(report.samples.values()), 'sample')}; {given.out}")
    for side, count in report.cut.items():
        note(f"{side}: {pluralize(count, 'answer')} cut at the token limit of inference")
    for side, count in report.failed.items():
        warn(f"{side}: {pluralize(count, 'answer')} failed and counted as empty")
    return ANSWERED


def show_report(report: EvaluationReport) -> None:
    """Print a line for each metric and adapter."""
    from colligate.lab.training.scores import LOWER_IS_BETTER

    def number(value: float | None, form: str = ".3f") -> str:
        return "" if value is None else f"{value:{form}}"

    rows = []
    for each in report.measures:
        less = " (lower is better)" if each.metric in LOWER_IS_BETTER else ""
        row = [each.task, f"{each.metric}{less}", f"{each.samples:,}", number(each.base)]
        if each.adapter:
            found = each.difference
            row += [number(each.adapted), number(found.mean if found else None, "+.3f")]
            row += (
                [f"{found.low:+.3f} to {found.high:+.3f}", f"{found.p:.4f}"] if found else ["", ""]
            )
            row += [found.stars if found else "", each.adapter]
        rows.append(row)
    headings = ["task", "metric", "samples", "base", "adapted", "difference", "95% interval", "p"]
    headings += ["", "adapter"]
    print_result(make_table(headings[: len(rows[0])], rows))
