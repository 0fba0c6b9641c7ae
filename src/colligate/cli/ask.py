"""`colligate ask`: a question, some paths, a cited answer."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.failures import ANSWERED, NOT_FOUND
from colligate.cli.running import run
from colligate.cli.terminal import say_json, warn
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.strategies.answer import Answer
    from colligate.strategies.trace import Event


def ask(
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="What to ask.", show_default=False)
    ],
    paths: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PATH...",
            help="Files, folders and globs to answer over; without any, the whole library.",
            show_default=False,
        ),
    ] = None,
    *,
    strategy: Annotated[
        str,
        typer.Option(
            help="How to find the answer: see `colligate strategies`.",
            rich_help_panel=options.MODELS,
        ),
    ] = "retrieve-read",
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: options.Judge = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    config: options.Config = None,
    library: options.LibraryFolder = None,
    wait: options.Wait = 30.0,
    cache: Annotated[
        bool,
        typer.Option(
            "--cache",
            help="Keep the model's replies in the library's folder: the same question over the "
            "same documents is paid for once.",
            rich_help_panel=options.LIMITS,
        ),
    ] = False,
    as_json: options.AsJson = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write every step to FILE as it happens, as JSON lines.",
            rich_help_panel=options.OUTPUT,
            show_default=False,
        ),
    ] = None,
    max_tokens_total: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The most tokens all model calls may take together, in and out.",
            rich_help_panel=options.LIMITS,
            show_default=False,
        ),
    ] = None,
    timeout: Annotated[
        float | None,
        typer.Option(
            min=0.001,
            metavar="SECONDS",
            help="The longest the whole run may take.",
            rich_help_panel=options.LIMITS,
            show_default=False,
        ),
    ] = None,
) -> int:
    """Answer a question over files and folders, with citations.

    Exit status: 0 answered, 3 not found in the documents, 2 wrong usage, 1 a fault.
    """
    from colligate.cli.display import show_answer, show_usage
    from colligate.cli.progress import watching
    from colligate.cli.tracing import TraceFile
    from colligate.engine import aask
    from colligate.settings import Settings

    try:
        question.encode()
    except UnicodeEncodeError as error:
        why = "its bytes are not valid in this terminal's encoding"
        raise UsageError("the question is not text", why, "write it in UTF-8") from error
    settings = Settings.load(config)
    with ExitStack() as stack:
        trace_file = stack.enter_context(TraceFile(trace)) if trace else None
        watcher = stack.enter_context(watching(sys.stderr))

        def on_event(event: Event) -> None:
            if trace_file is not None:
                trace_file.write(event)
            watcher.see(event)

        answer: Answer = run(
            aask(
                question,
                paths or [],
                strategy=strategy,
                model=model,
                worker_model=worker_model,
                scorer=scorer,
                judge=judge,
                embedder=embedder,
                reranker=reranker,
                library=library,
                settings=settings,
                max_tokens_total=max_tokens_total,
                timeout=timeout,
                wait=wait,
                cache=cache,
                on_event=on_event,
            )
        )
    for warning in answer.warnings:
        if warning not in watcher.warned:
            warn(warning)
    if as_json:
        say_json(answer.to_json())
    else:
        show_answer(answer)
        show_usage(answer)
    return ANSWERED if answer.found else NOT_FOUND
