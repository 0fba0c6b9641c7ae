"""`colligate strategies`: what there is, what each needs, what this machine can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colligate.cli import options
from colligate.cli.failures import ANSWERED
from colligate.cli.terminal import note, say, say_json
from colligate.errors import ColligateError, UsageError

if TYPE_CHECKING:
    from colligate.models import Capability


def strategies(model: options.Model = None, as_json: options.AsJson = False) -> int:
    """List the strategies: what each does, what it needs, and whether it can run here."""
    from colligate.cli.checks import capabilities, model_taken
    from colligate.strategies.strategy import available

    has: frozenset[Capability] = frozenset()
    problem = name = ""
    try:
        name, _ = model_taken(model)
        has = capabilities(name)
    except UsageError:
        raise
    except ColligateError as error:
        problem = str(error)
    rows = [_row(strategy, has, name, problem) for strategy in available()]
    if as_json:
        say_json(rows)
        return ANSWERED
    _show(rows)
    note(problem or f"with the model {name}")
    return ANSWERED


def _row(strategy: str, has: frozenset[Capability], model: str, problem: str) -> dict[str, Any]:
    from colligate.strategies.strategy import strategy_type, summary

    kind = strategy_type(strategy)
    lacking = sorted(c.value for c in kind.needs.required - has)
    why = problem or (f"{model} does not offer {', '.join(lacking)}" if lacking else "")
    return {
        "name": strategy,
        "description": summary(kind),
        "required": sorted(c.value for c in kind.needs.required),
        "optional": sorted(c.value for c in kind.needs.optional),
        "searches": kind.needs.searches,
        "runs": not why,
        "why_not": why,
    }


def _show(rows: list[dict[str, Any]]) -> None:
    from colligate.cli.tables import table

    cells = [
        (
            row["name"],
            row["description"],
            ", ".join([*row["required"], *(f"({name})" for name in row["optional"])]),
            "yes" if row["runs"] else "no",
        )
        for row in rows
    ]
    say(table(["strategy", "what it does", "needs (can use)", "runs here"], cells))
    for why in dict.fromkeys(row["why_not"] for row in rows if row["why_not"]):
        note(f"not here: {why}")
