"""`colligate ask`: a question, some paths, a cited answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.display import note, say_json
from colligate.cli.failures import ANSWERED, NOT_FOUND
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.core.answer import Answer
    from colligate.core.events import Listener


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

    While `colligate serve` holds the library, the server is asked, with its models.

    Exit status: 0 answered, 3 not found in the documents, 2 wrong usage, 1 a fault.
    """
    from colligate.cli.display import show_answer, usage_line
    from colligate.cli.remote import holding
    from colligate.cli.watched import hold_to_text, watched
    from colligate.core.events import Trace
    from colligate.core.parameters import set_parameters
    from colligate.core.strategy import load_strategy
    from colligate.engine import Engine
    from colligate.session import configure
    from colligate.settings import Settings

    hold_to_text(question)
    kind = load_strategy(strategy)
    settings = Settings.load(config)
    given = options.given(parameters, router_adapter)
    set_parameters(kind, given)  # a wrong parameter is told before anything is opened
    named = {
        "reader": model,
        "worker": worker_model,
        "scorer": scorer,
        "judge": judge,
        "embedder": embedder,
        "reranker": reranker,
    }

    async def asked(on_event: Listener) -> Answer:
        async with Engine(
            model=model,
            worker_model=worker_model,
            scorer=scorer,
            judge=judge,
            embedder=embedder,
            reranker=reranker,
            library=library,
            settings=settings,
            wait=wait,
            cache=cache,
        ) as engine:
            folder = (await engine.open_library()).path
            server = await holding(folder)
            if server is None:
                return await engine.ask(
                    question,
                    paths or [],
                    strategy=configure(kind, settings, given, Trace([on_event], keep=False)),
                    max_tokens_total=max_tokens_total,
                    timeout=timeout,
                    on_event=on_event,
                )
            if paths:
                raise UsageError(
                    f"files cannot be asked over the library {folder} just now",
                    f"the server at {server.url} holds it",
                    "add them there and name none here, or name another --library",
                )
            return await server.ask(
                question,
                strategy=strategy,
                parameters=given,
                models=named,
                max_tokens_total=max_tokens_total,
                timeout=timeout,
                prompts=trace is not None,
                on_event=on_event,
            )

    answer = watched(asked, trace)
    if as_json:
        say_json(answer.to_json())
    else:
        show_answer(answer)
        note(usage_line(answer.usage, answer.model))
    return ANSWERED if answer.found else NOT_FOUND
