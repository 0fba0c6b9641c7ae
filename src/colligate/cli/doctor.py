"""`colligate doctor`: what works here, and how to mend the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colligate.cli import options
from colligate.cli.failures import ANSWERED, FAULT
from colligate.cli.terminal import one_line, say, say_json

if TYPE_CHECKING:
    from rich.text import Text

    from colligate.cli.checks import Check


def doctor(
    model: options.Model = None,
    embedder: options.Embedder = "minilm",
    library: options.LibraryFolder = None,
    as_json: options.AsJson = False,
) -> int:
    """Check that `colligate ask` works here, and say how to mend what does not.

    Exit status: 0 if `ask` would work, 1 if something it needs is missing.
    """
    from colligate.cli.checks import checks

    done: list[Check] = []
    for check in checks(model, embedder, library):
        done.append(check)
        if not as_json:
            say(_line(check))
    works = all(check.ok for check in done if check.needed)
    if as_json:
        say_json({"works": works, "checks": [check.to_json() for check in done]})
    return ANSWERED if works else FAULT


def _line(check: Check) -> Text:
    from rich.text import Text

    state, style = _STATES[check.ok, check.needed]
    line = Text.assemble((f"{state:9}", style), f"{check.name}: {one_line(check.found)}")
    if check.mend and not check.ok:
        line.append(f"; {one_line(check.mend)}")
    return line


_STATES = {
    (True, True): ("ok", "green"),
    (True, False): ("ok", "green"),
    (False, True): ("missing", "red"),
    (False, False): ("optional", "dim"),
}
