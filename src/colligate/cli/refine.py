"""`colligate refine`: a question, some paths, the parts of them it needs under a budget."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.display import console, counted, note, say_json, visible
from colligate.cli.failures import ANSWERED, NOT_FOUND

if TYPE_CHECKING:
    from colligate.core.answer import Refined


def refine(
    question: options.Question,
    paths: options.Paths = None,
    *,
    budget: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="The most tokens the text may have. Default: 2048.",
            rich_help_panel=options.LIMITS,
            show_default=False,
        ),
    ] = None,
    parameters: options.Set = None,
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    config: options.Config = None,
    library: options.LibraryFolder = None,
    wait: options.Wait = 30.0,
    cache: options.Cache = False,
    as_json: options.AsJson = False,
    trace: options.Trace = None,
    max_tokens_total: options.MaxTokensTotal = None,
    timeout: options.Timeout = None,
) -> int:
    """Print what a question needs of files and folders, for any reader to answer from.

    The best documents are cut down to the budget by their structure, as the strategy longrefiner
    does before it reads; --set takes its parameters.

    Exit status: 0 something was kept, 3 nothing was, 2 wrong usage, 1 a fault.
    """
    from colligate.cli.display import usage_line
    from colligate.cli.watched import hold_to_text, watched
    from colligate.core.events import Trace
    from colligate.engine import arefine
    from colligate.session import configure
    from colligate.settings import Settings
    from colligate.strategies.longrefiner.method import LongRefiner

    hold_to_text(question)
    settings = Settings.load(config)
    refined = watched(
        lambda on_event: arefine(
            question,
            paths or [],
            refiner=configure(
                LongRefiner, settings, parameters or [], Trace([on_event], keep=False)
            ),
            budget=budget,
            model=model,
            worker_model=worker_model,
            scorer=scorer,
            embedder=embedder,
            reranker=reranker,
            library=library,
            settings=settings,
            max_tokens_total=max_tokens_total,
            timeout=timeout,
            wait=wait,
            cache=cache,
            on_event=on_event,
        ),
        trace,
    )
    if as_json:
        say_json(refined.to_json())
    else:
        _show(refined)
        documents = counted(len(refined.documents), "document")
        kept = f"{refined.tokens:,} of {refined.budget:,}"
        cost = usage_line(refined.usage, refined.model)
        note(f"{documents}, {refined.of_tokens:,} tokens -> {kept}; {cost}")
    return ANSWERED if refined.passages else NOT_FOUND


def _show(refined: Refined) -> None:
    from rich.text import Text

    text = visible(refined.text)
    if not text:
        return
    if sys.stdout.isatty():
        console(sys.stdout).print(Text(text))
    else:
        sys.stdout.write(text.rstrip("\n") + "\n")
