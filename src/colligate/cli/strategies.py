"""`colligate strategies`: what there is, what each needs, what this machine can run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colligate.cli import options
from colligate.cli.failures import ANSWERED
from colligate.cli.running import run
from colligate.cli.terminal import note, say, say_json
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.cli.chosen import Chosen

_RUNS = {True: "yes", False: "no", None: "not known"}


def strategies(
    model: options.Model = None,
    worker_model: options.WorkerModel = None,
    scorer: options.Scorer = None,
    judge: options.Judge = None,
    config: options.Config = None,
    as_json: options.AsJson = False,
) -> int:
    """List the strategies: what each does, what it needs, and whether it can run here.

    Behind each need stands whose model meets it; needs in brackets can be done without. No
    server is asked: `colligate doctor` does.
    """
    from colligate.cli.chosen import chosen_models, verdict
    from colligate.settings import Settings
    from colligate.strategies.strategy import available, strategy_type

    settings = Settings.load(config).given(
        reader=model, worker=worker_model, scorer=scorer, judge=judge
    )
    chosen = run(chosen_models(settings, ask=False))
    for one in chosen.values():
        if isinstance(one.problem, UsageError):
            raise one.problem
    rows = [verdict(strategy_type(name), chosen) for name in available()]
    if as_json:
        say_json(rows)
        return ANSWERED
    _show(rows, list(chosen.values()))
    return ANSWERED


def _show(rows: list[dict[str, Any]], chosen: list[Chosen]) -> None:
    from colligate.cli.tables import table

    cells = [
        (
            row["name"],
            row["description"],
            ", ".join(_need(need) for need in row["needs"]),
            _RUNS[row["runs"]],
        )
        for row in rows
    ]
    say(table(["strategy", "what it does", "needs (can use)", "runs here"], cells))
    for one in chosen:
        note(str(one))
    for why, runs in {row["why_not"]: row["runs"] for row in rows if row["why_not"]}.items():
        note(f"not here: {why}" if runs is False else f"{why}; colligate doctor asks")


def _need(need: dict[str, Any]) -> str:
    by = {True: need["role"], False: "missing", None: f"{need['role']}?"}[need["met"]]
    said = f"{need['capability']}: {by}"
    return said if need["required"] else f"({said})"
