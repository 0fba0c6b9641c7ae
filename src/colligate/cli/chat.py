"""`colligate chat`: questions one after another, each of which may point back."""

from __future__ import annotations

import sys
from contextlib import suppress

import typer

from colligate.cli import options
from colligate.cli.ask import AskOptions, make_ask, require_strategy, show
from colligate.cli.command import ANSWERED, command, event_loop, report_error
from colligate.cli.display import is_terminal, note
from colligate.errors import ColligateError

app = typer.Typer(add_completion=False)

_LEAVE = frozenset({"exit", "quit"})


@command(app)
def chat_command(
    paths: options.Paths = None,
    *,
    asked: AskOptions,
    models: options.EngineOptions,
    run: options.RunOptions,
) -> int:
    """Ask questions one after another; each may point back to the ones before.

    A question such as "and when does it end?" is completed from the conversation, which is shown,
    and answered as `colligate ask` answers it. Without a terminal each line of standard input is a
    question. Ctrl-C stops an answer, Ctrl-D ends the conversation.

    Exit status: that of the last question, as of `colligate ask`.

    Examples:
        colligate chat contracts/
        colligate chat --library papers.library --model ollama/qwen3:8b
    """
    from colligate.cli.progress import require_question, watch_run
    from colligate.readers.followup import Turn
    from colligate.reporting import require_paths

    with suppress(ImportError):  # Windows has none, and a console that does the same
        import readline  # noqa: F401 (arrow keys and earlier questions, for `input`)
    if paths:
        require_paths(paths)
    require_strategy(asked, run)
    engine = models.engine(asked)
    history: list[Turn] = []
    status = ANSWERED
    with event_loop() as loop, watch_run(run.trace) as watcher:
        ask = make_ask(engine, paths or [], asked, run, watcher)
        try:
            while (question := watcher.read_line("? ")) is not None:
                if question.lower() in _LEAVE:
                    break
                try:
                    require_question(question, paths)
                    answer = loop.run(ask(question, history=history))
                except ColligateError as error:
                    with watcher.paused():
                        status = report_error(error)
                except KeyboardInterrupt:
                    if not is_terminal(sys.stdin):
                        raise
                    with watcher.paused():
                        note("stopped; ask again, or leave with Ctrl-D")
                else:
                    with watcher.paused():
                        status = show(answer, run, watcher)
                    history.append(Turn.of(answer))
        finally:
            loop.run(engine.aclose())
    return status
