"""`colligate ask`: a question, some paths, a cited answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, NOT_FOUND, command
from colligate.cli.display import note, print_json

if TYPE_CHECKING:
    from colligate.cli.progress import Watcher
    from colligate.core.answer import Answer
    from colligate.engine import Engine

    Ask = Callable[..., Coroutine[Any, Any, Answer]]

app = typer.Typer(add_completion=False)


@dataclass(frozen=True)
class AskOptions(options.ReadOptions):
    """How questions are answered."""

    strategy: Annotated[
        str,
        options.option(
            "How to find the answer; `colligate strategies` lists the strategies.",
            options.MODELS,
            default=True,
        ),
    ] = "auto"
    effort: Annotated[
        Literal["low", "normal", "high"] | None,
        options.option(
            "How much `auto` may do: low reads once, normal may try one more method, high tries "
            "all methods in turn until nothing is missing. Default: normal.",
            options.LIMITS,
        ),
    ] = None
    yes: Annotated[
        bool,
        options.option(
            "Allow work that takes many model calls, such as an agent for each of many documents, "
            "without being asked.",
            options.LIMITS,
            "--yes",
        ),
    ] = False
    risk: Annotated[
        str | None,
        options.named(
            "The share of the answers given that may be wrong; less sure ones are left out: a "
            "number such as 0.1, or careful (0.1), balanced (0.2) or eager (0.4).",
            "RISK",
            "the reader's own",
            options.LIMITS,
            "SHARE",
        ),
    ] = None
    where: options.Where = None
    chunker: options.Chunker = None
    judge: options.Judge = None


@dataclass(frozen=True)
class WriteOptions:
    """The shape of the answer, and the files that it is written to."""

    schema: Annotated[
        Path | None,
        options.option(
            "Answer as JSON in the shape of a JSON Schema; each value is cited, or null where the "
            "documents do not say.",
            options.OUTPUT,
            metavar="FILE",
        ),
    ] = None
    output: Annotated[
        list[Path] | None,
        options.option(
            "Also write the answer with its sources to FILE, as its ending says: .md, .html, "
            ".docx, or .bib for the documents cited; may be repeated.",
            options.OUTPUT,
            "--output",
            "-o",
            metavar="FILE",
        ),
    ] = None
    proof: Annotated[
        Path | None,
        options.option(
            "Also write each citation with its place and the SHA-256 of its document to FILE, "
            "for `colligate audit`.",
            options.OUTPUT,
            metavar="FILE",
        ),
    ] = None


@command(app)
async def ask_command(
    question: options.Question,
    paths: options.Paths = None,
    *,
    written: WriteOptions,
    asked: AskOptions,
    models: options.EngineOptions,
    run: options.RunOptions,
) -> int:
    """Answer a question over files and folders, with citations.

    Exit status: 0 answered, 3 not found in the documents, 2 wrong usage, 1 a fault.

    Examples:
        colligate ask "When does the lease of the mill end?" contracts/
        colligate ask "What were the risks?" 10-K/ --where "date>=2024" -o answer.docx
    """
    from colligate.cli.progress import require_question, watch_run
    from colligate.export import choose_format, require_writable, write_file
    from colligate.readers.filling import Shape

    require_question(question, paths)
    for file in written.output or []:
        choose_format(file)
    if written.proof is not None:
        require_writable(written.proof)
    schema = None
    if written.schema is not None:
        schema = options.read_json(written.schema)
        Shape(schema)
    require_strategy(asked, run)
    engine = models.engine(asked)
    with watch_run(run.trace) as watcher:
        async with engine:
            ask = make_ask(engine, paths or [], asked, run, watcher)
            answer = await ask(question, schema=schema)
            proof = await engine.prove(answer) if written.proof is not None else None
    status = show(answer, run, watcher)
    if written.proof is not None:
        write_file(written.proof, json.dumps(proof, indent=1).encode())
        note(f"written to {written.proof}")
    for file in written.output or []:
        answer.export(file)
        note(f"written to {file}")
    return status


def require_strategy(asked: AskOptions, run: options.RunOptions) -> None:
    """Refuse a wrong strategy, parameter or risk before a model is opened or a trace is begun."""
    from colligate.core.parameters import set_parameters
    from colligate.core.run import parse_risk
    from colligate.core.strategy import load_strategy

    set_parameters(load_strategy(asked.strategy), run.limits(asked.effort)["parameters"])
    parse_risk(asked.risk)


def make_ask(
    engine: Engine,
    paths: Sequence[str],
    asked: AskOptions,
    run: options.RunOptions,
    watcher: Watcher,
) -> Ask:
    """Return what answers a question over some paths, with `history=`."""

    async def consent(estimate: str) -> bool:
        return asked.yes or await asyncio.to_thread(watcher.confirm, f"{estimate}: do it?")

    return partial(
        engine.ask,
        paths=paths,
        strategy=asked.strategy,
        where=asked.where or [],
        risk=asked.risk,
        on_event=watcher.see,
        consent=consent,
        live=watcher.live,
        **run.limits(asked.effort),
    )


def show(answer: Answer, run: options.RunOptions, watcher: Watcher) -> int:
    """Print an answer and what it took; return the exit status."""
    from colligate.cli.display import show_answer
    from colligate.export import describe_chance, describe_usage

    watcher.warn_rest(answer.warnings)
    if run.as_json:
        print_json(answer.to_json())
    else:
        show_answer(answer)
        usage = describe_usage(answer.usage.to_json(), answer.model)
        for fact in filter(None, (describe_chance(answer.to_json()), answer.how, usage)):
            note(fact)
    return ANSWERED if answer.found else NOT_FOUND
