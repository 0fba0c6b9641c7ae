"""`colligate models`: weights and llama.cpp, kept on this machine, pinned by SHA-256."""

from __future__ import annotations

from typing import Annotated

import typer

from colligate.cli import options
from colligate.cli.command import ANSWERED, command
from colligate.cli.display import make_table, print_result

app = typer.Typer(help="List and fetch local model weights, pinned by SHA-256.")


@command(app, "list")
def models_list_command() -> int:
    """List the weights and libraries that can be pulled, and whether they are here.

    Examples:
        colligate models list
    """
    from colligate.models.llama.libraries import library_entry
    from colligate.models.weights import list_weights

    rows = []
    for each in [*list_weights(), library_entry()]:
        here, size = "here" if each.present else "not here", f"{each.megabytes:,.0f} MB"
        rows.append((each.name, here, size, each.licence, each.purpose))
    print_result(make_table(["name", "", "size", "licence", "for"], rows))
    return ANSWERED


@command(app, "pull")
def models_pull_command(
    names: Annotated[
        list[str] | None,
        options.argument(
            "Names from `colligate models list`, or ORG/REPO:FILE of the hub. "
            "Default: what `colligate ask` needs.",
            "NAME...",
        ),
    ] = None,
) -> int:
    """Fetch weights that are not here yet, or have changed, and check their SHA-256.

    With a GGUF model comes llama.cpp, which runs it.

    Examples:
        colligate models pull qwen3-4b
    """
    from colligate.cli.progress import watch_run
    from colligate.core.events import Trace
    from colligate.models.llama.libraries import LIBRARY, pull_libraries, verify_libraries
    from colligate.models.names import OWN_NAMES
    from colligate.models.weights import BUNDLED, get_pinned, pull, resolve_weights, verify_weights
    from colligate.reporting import report_pull

    given = [OWN_NAMES.get(name, name) for name in names or [BUNDLED, "minilm-l6-v2-int8"]]
    # A wrong name is an error before anything is fetched.
    wanted = [n if n == LIBRARY else resolve_weights(n.removeprefix("gguf:")) for n in given]
    if LIBRARY not in wanted and any(get_pinned(name).is_gguf for name in wanted):
        wanted.append(LIBRARY)
    with watch_run() as watcher:
        see = report_pull(Trace([watcher.see], keep=False))
        for name in wanted:
            for changed in verify_libraries() if name == LIBRARY else verify_weights(name):
                changed.unlink(missing_ok=True)
            if name == LIBRARY:
                pull_libraries(see)
            else:
                pull(name, see)
    for name in wanted:
        print_result(f"{name} is here")
    return ANSWERED
