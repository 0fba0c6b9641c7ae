r"""Options of `colligate bench run` that no other command has.

Help texts are read as rich markup, where `\[` is a bracket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colligate.cli import options

WHAT = "What is asked"
OWN = "Your own questions (SUITE is own)"

Data = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder of the data sets' files.",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
Strategies = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="The suite's strategies to ask, or any others of `colligate strategies`. Default: "
        "those that the suite asks by default and the models can run.",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
Datasets = Annotated[
    str | None,
    typer.Option(
        metavar="A,B,C",
        help="The suite's data sets to ask. Default: those that it asks by default.",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of all strategies that have it, such as router_adapter=DIR, as often "
        "as you like. What the suite itself sets stays.",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="How many questions of each data set. Default: as many as the suite says.",
        rich_help_panel=WHAT,
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option(
        min=0, help="Draws the questions; the same seed, the same ones.", rich_help_panel=WHAT
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="The run's folder. One that holds a part of the same run is gone on with.",
        rich_help_panel=options.OUTPUT,
        show_default=False,
    ),
]
Indexes = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Where indexed corpora are kept, for several runs to share. Default: in --out.",
        rich_help_panel=options.OUTPUT,
        show_default=False,
    ),
]
Replies = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep the models' replies in a file, for several runs to share: the same request to "
        "the same model is asked once. Rows count its tokens all the same, but not its seconds.",
        rich_help_panel=options.OUTPUT,
        show_default=False,
    ),
]
Traces = Annotated[
    bool,
    typer.Option(
        "--traces/--no-traces",
        help="Keep every answer's events, for the report's pictures and links.",
        rich_help_panel=options.OUTPUT,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        min=1,
        metavar="N",
        help="How many answers are under way at once. With more than one the seconds of an answer "
        "are not its own.",
        rich_help_panel=options.LIMITS,
    ),
]
MaxTokensTotal = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The most tokens that this command may spend, in and out, judge included.",
        rich_help_panel=options.LIMITS,
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="The longest one answer may take; then it has failed.",
        rich_help_panel=options.LIMITS,
        show_default=False,
    ),
]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Ask again what failed before.", rich_help_panel=WHAT),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        help="Say about how many calls and tokens it will take, and ask nothing.",
        rich_help_panel=options.LIMITS,
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(
        help="The model that judges answers, where metrics want one. Default: COLLIGATE_JUDGE, "
        "else the file, else none.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
Nli = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The entailment model of claims and citations: a T5 by name, or `judge` for the odds "
        "of the judge.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
Qa = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="The reader of Disambig-F1: a model trained on SQuAD 2 by name, or `judge`.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
Questions = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="CSV or JSON Lines: question, and if wanted answer, documents, gold, answerable, id.",
        rich_help_panel=OWN,
        show_default=False,
    ),
]
Documents = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="The folder that they are asked over.",
        rich_help_panel=OWN,
        show_default=False,
    ),
]
Format = Annotated[
    str,
    typer.Option(help="The format of the questions (docs/datasets.md).", rich_help_panel=OWN),
]
