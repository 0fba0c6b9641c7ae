"""`colligate doctor`: what works here, and how to fix the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colligate.cli import options
from colligate.cli.display import one_line, say, say_json
from colligate.cli.failures import ANSWERED, FAULT

if TYPE_CHECKING:
    from rich.table import Table

    from colligate.cli.checks import Check


def doctor(
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: options.Judge = None,
    embedder: options.Embedder = None,
    reranker: options.Reranker = None,
    config: options.Config = None,
    library: options.LibraryFolder = None,
    as_json: options.AsJson = False,
) -> int:
    """Check that `colligate ask` works here, and say how to fix what does not.

    Endpoints are asked, by a call of one token, what they offer; then each strategy is held to
    what the models chosen offer. Exit status: 0 if `ask` would work with its default strategy, 1
    if something it needs is missing.
    """
    from colligate.cli.checks import checks

    given = {
        "reader": model,
        "worker": worker_model,
        "scorer": scorer,
        "judge": judge,
        "embedder": embedder,
        "reranker": reranker,
        "library": None if library is None else str(library),
    }
    done: list[Check] = []
    for check in checks(config, given):
        done.append(check)
        if not as_json:
            say(_line(check))
    works = all(check.ok for check in done if check.needed)
    if as_json:
        say_json({"works": works, "checks": [check.to_json() for check in done]})
    return ANSWERED if works else FAULT


def _line(check: Check) -> Table:
    from rich.table import Table
    from rich.text import Text

    state, style = _STATES[check.ok, check.needed]
    found = f"{check.name}: {one_line(check.found)}"
    if check.hint and not check.ok:
        found += f"; {one_line(check.hint)}"
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(min_width=8)
    line.add_column(overflow="fold")
    line.add_row(Text(state, style), Text(found))
    return line


_STATES = {
    (True, True): ("ok", "green"),
    (True, False): ("ok", "green"),
    (False, True): ("missing", "red"),
    (False, False): ("optional", "dim"),
}
