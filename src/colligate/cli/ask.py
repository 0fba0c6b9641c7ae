"""`colligate ask`: a question, some paths, a cited answer."""

from __future__ import annotations

from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.failures import ANSWERED, NOT_FOUND
from colligate.cli.terminal import note, say_json


def ask(
    question: options.Question,
    paths: options.Paths = None,
    *,
    strategy: Annotated[
        str,
        typer.Option(
            help="How to find the answer: see `colligate strategies`.",
            rich_help_panel=options.MODELS,
        ),
    ] = "retrieve-read",
    parameters: options.Set = None,
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: options.Judge = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    router_adapter: options.RouterAdapter = None,
    config: options.Config = None,
    library: options.LibraryFolder = None,
    wait: options.Wait = 30.0,
    cache: options.Cache = False,
    as_json: options.AsJson = False,
    trace: options.Trace = None,
    max_tokens_total: options.MaxTokensTotal = None,
    timeout: options.Timeout = None,
) -> int:
    """Answer a question over files and folders, with citations.

    Exit status: 0 answered, 3 not found in the documents, 2 wrong usage, 1 a fault.
    """
    from colligate.cli.display import show_answer, usage_line
    from colligate.cli.watched import hold_to_text, watched
    from colligate.engine import aask
    from colligate.opening import set_up
    from colligate.settings import Settings
    from colligate.strategies.strategy import strategy_type
    from colligate.strategies.trace import Trace

    hold_to_text(question)
    kind = strategy_type(strategy)
    settings = Settings.load(config)
    given = options.given(parameters, router_adapter)
    answer = watched(
        lambda on_event: aask(
            question,
            paths or [],
            strategy=set_up(kind, settings, given, Trace([on_event], keep=False)),
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
        ),
        trace,
    )
    if as_json:
        say_json(answer.to_json())
    else:
        show_answer(answer)
        note(usage_line(answer.usage, answer.model))
    return ANSWERED if answer.found else NOT_FOUND
