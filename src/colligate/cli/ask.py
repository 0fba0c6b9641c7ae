"""`colligate ask`: a question, some paths, a cited answer."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, NOT_FOUND, command
from colligate.cli.display import note, print_json
from colligate.errors import UsageError

app = typer.Typer(add_completion=False)


@command(app)
async def ask_command(
    question: options.Question,
    paths: options.Paths = None,
    *,
    strategy: Annotated[
        str,
        options.option(
            "How to find the answer; `colligate strategies` lists the strategies.",
            options.MODELS,
            default=True,
        ),
    ] = "auto",
    effort: Annotated[
        Literal["low", "normal", "high"] | None,
        options.option(
            "How much `auto` may do: low reads once, normal may ask one method more, high all of "
            "them. Default: normal.",
            options.LIMITS,
        ),
    ] = None,
    yes: Annotated[
        bool,
        options.option(
            "Allow work that takes many model calls, such as an agent for each of many documents, "
            "without being asked.",
            options.LIMITS,
            "--yes",
        ),
    ] = False,
    where: options.Where = None,
    follow_links: options.FollowLinks = False,
    models: options.EngineOptions,
    judge: options.Judge = None,
    router_adapter: options.RouterAdapter = None,
    run: options.RunOptions,
) -> int:
    """Answer a question over files and folders, with citations.

    While `colligate serve` holds the library, its server answers, with its models.

    Exit status: 0 answered, 3 not found in the documents, 2 wrong usage, 1 a fault.
    """
    from colligate.cli.display import format_usage, show_answer
    from colligate.cli.progress import require_text, watch_run
    from colligate.cli.remote import find_server
    from colligate.core.events import Trace
    from colligate.core.parameters import set_parameters
    from colligate.core.strategy import load_strategy
    from colligate.session import configure

    require_text(question)
    kind = load_strategy(strategy)
    settings = models.load_settings()
    parameters = run.settings(router_adapter)
    if effort is not None:
        parameters.append(f"effort={effort}")
    set_parameters(kind, parameters)  # a wrong parameter is reported before anything is opened
    with watch_run(run.trace) as watcher:

        async def consent(estimate: str) -> bool:
            return yes or await asyncio.to_thread(watcher.confirm, f"{estimate}: do it?")

        async with models.engine(settings, judge=judge, follow_links=follow_links) as engine:
            folder = (await engine.open_library()).path
            server = await find_server(folder)
            if server is None:
                answer = await engine.ask(
                    question,
                    paths or [],
                    strategy=configure(
                        kind, settings, parameters, Trace([watcher.see], keep=False)
                    ),
                    where=where or [],
                    max_tokens_total=run.max_tokens_total,
                    timeout=run.timeout,
                    on_event=watcher.see,
                    consent=consent,
                )
            elif paths:
                raise UsageError(
                    f"the library {folder} takes no files at the moment",
                    f"the server at {server.url} holds it",
                    "add the files at the server and give no PATH, or give another --library",
                )
            else:
                answer = await server.ask(
                    question,
                    strategy=strategy,
                    parameters=parameters,
                    models={**models.names(), "judge": judge},
                    where=where or [],
                    prompts=run.trace is not None,
                    max_tokens_total=run.max_tokens_total,
                    timeout=run.timeout,
                    yes=yes,
                    on_event=watcher.see,
                )
    watcher.warn_rest(answer.warnings)
    if run.as_json:
        print_json(answer.to_json())
    else:
        show_answer(answer)
        if answer.how:
            note(answer.how)
        note(format_usage(answer.usage, answer.model))
    return ANSWERED if answer.found else NOT_FOUND
