r"""Options of `colligate train` that no other command has.

Help texts are read as rich markup, where `\[` is a bracket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colligate.cli import options

DATA = "Data"

Questions = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The questions, in any form of docs/datasets.md; longrefiner's structuring needs "
        "none.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Format = Annotated[
    str, typer.Option(help="The format of the questions (docs/datasets.md).", rich_help_panel=DATA)
]
Library = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Ask over an indexed library. Default: over what comes with each question.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Corpus = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        help="Ask over a file of passages or a folder of documents, which is indexed below --out.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Tasks = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="The tasks that samples are made for. Default: all of the system's.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="How many questions, or documents. Default: all.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Seed = Annotated[
    int,
    typer.Option(min=0, help="Draws questions, and those held out.", rich_help_panel=DATA),
]
HeldOut = Annotated[
    float,
    typer.Option(
        min=0.0,
        max=0.9,
        metavar="SHARE",
        help="The share of questions, or documents, whose samples are kept for evaluation.",
        rich_help_panel=DATA,
    ),
]
RetryFailed = Annotated[
    bool,
    typer.Option("--retry-failed", help="Do again what failed before.", rich_help_panel=DATA),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL",
        help="The model whose replies are learnt: bundled, gguf:PATH, hf:NAME or "
        "openai:MODEL\\[@URL]; longrefiner's structuring asks none.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(
        help="The model that says which of dualrag's answers are right. Default: "
        "COLLIGATE_JUDGE, else the file, else the words of the right answer decide.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
CurateSet = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter of the system or of its curation (docs/training.md), as often as "
        "you like.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        metavar="DIR",
        help="The folder of what is made. One that holds a part of the same is gone on with.",
        rich_help_panel=options.OUTPUT,
        show_default=False,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(
        min=1, metavar="N", help="How many are under way at once.", rich_help_panel=options.LIMITS
    ),
]
MaxTokensTotal = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The most tokens that this command may spend, in and out. The same command goes on.",
        rich_help_panel=options.LIMITS,
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="The longest that one question, or document, may take; then it has failed.",
        rich_help_panel=options.LIMITS,
        show_default=False,
    ),
]
Recipe = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE",
        help="A recipe's name (`colligate train recipes`), or the path of one (.toml).",
        show_default=False,
    ),
]
Samples = Annotated[
    Path,
    typer.Option(
        "--data",
        metavar="DIR",
        help="A folder of curated samples.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Base = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="What is trained: hf:NAME-OR-PATH.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
FitSet = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A number in place of the recipe's, such as epochs=2, as often as you like.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Export = Annotated[
    str | None,
    typer.Option(
        metavar="FORM",
        help="Train nothing; write the same training into --out for another trainer: "
        "llama-factory.",
        rich_help_panel=options.OUTPUT,
        show_default=False,
    ),
]
Evaluated = Annotated[
    Path,
    typer.Argument(metavar="DIR", help="A folder of curated samples.", show_default=False),
]
Model = Annotated[
    str,
    typer.Option(
        metavar="MODEL",
        help="The base that the adapters are compared with.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
Adapter = Annotated[
    list[str] | None,
    typer.Option(
        metavar="[TASK=]DIR",
        help="An adapter for all tasks or for one, as often as you like: a folder, a hub name, or "
        "the name that the base's server gives it. The folder of a model trained whole will do.",
        rich_help_panel=options.MODELS,
        show_default=False,
    ),
]
EvaluatedTasks = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="The tasks whose samples are asked. Default: all there are.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
EvaluatedLimit = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="How many samples of each task. Default: all.",
        rich_help_panel=DATA,
        show_default=False,
    ),
]
Split = Annotated[
    str,
    typer.Option(help="The file of samples: held_out or train.", rich_help_panel=DATA),
]
EvaluatedSeed = Annotated[
    int,
    typer.Option(min=0, help="Draws the samples, and the bootstrap's.", rich_help_panel=DATA),
]
