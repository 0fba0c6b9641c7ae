"""`colligate models`: the weights kept on this machine, pinned by SHA-256."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from colligate.cli import options
from colligate.cli.display import say, say_json
from colligate.cli.failures import ANSWERED

if TYPE_CHECKING:
    from colligate.models.weights import WeightsEntry
app = typer.Typer(help="Local model weights, pinned by SHA-256.")


@app.command("list")
def list_models(as_json: options.AsJson = False) -> int:
    """List the weights that can be pulled, and which are here."""
    from colligate.models.weights import list_weights

    listed = list_weights()
    if as_json:
        say_json([_row(weights) for weights in listed])
        return ANSWERED
    from colligate.cli.display import table

    rows = [
        (
            weights.name,
            "here" if weights.present else "not here",
            f"{weights.megabytes:,.0f} MB",
            weights.licence,
            weights.purpose,
        )
        for weights in listed
    ]
    say(table(["name", "", "size", "licence", "for"], rows))
    return ANSWERED


@app.command("pull")
def pull_models(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME...",
            help="Names from `colligate models list`. Default: what `colligate ask` needs.",
            show_default=False,
        ),
    ] = None,
) -> int:
    """Fetch weights that are not here yet, and check their SHA-256."""
    from colligate.cli.progress import watching
    from colligate.core.events import Progressed
    from colligate.models.weights import BUNDLED, PINNED, pull

    wanted = names or [BUNDLED, "minilm-l6-v2-int8"]
    wanted = [BUNDLED if name == "bundled" else name for name in wanted]
    for name in wanted:
        if name not in PINNED:
            pull(name)  # says which names there are
    with watching(sys.stderr) as watcher:
        for name in wanted:
            pull(
                name,
                lambda done, total, what: watcher.see(Progressed("pulling", done, total, what)),
            )
    for name in wanted:
        say(f"{name} is here")
    return ANSWERED


def _row(weights: WeightsEntry) -> dict[str, object]:
    return {
        "name": weights.name,
        "purpose": weights.purpose,
        "megabytes": round(weights.megabytes, 1),
        "licence": weights.licence,
        "present": weights.present,
        "path": str(weights.path),
        "sha256": weights.digest,
    }
