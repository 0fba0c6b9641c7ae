r"""Options that several commands share.

Help texts are read as rich markup, where `\[` is a bracket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODELS = "Models"
LIBRARY = "Library"
OUTPUT = "Output"
LIMITS = "Limits"

Question = Annotated[
    str, typer.Argument(metavar="QUESTION", help="What to ask.", show_default=False)
]
Paths = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="PATH...",
        help="Files, folders and globs to answer over; without any, the whole library.",
        show_default=False,
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set a parameter, as often as you like: `colligate strategies NAME` shows what "
        "there is.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
RouterAdapter = Annotated[
    str | None,
    typer.Option(
        metavar="DIR",
        help="A LoRA adapter on the router of rdr2: a folder, a hub name, or the name that the "
        "router's server gives it. Default: that of the file.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Model = Annotated[
    str | None,
    typer.Option(
        help="The model that reads and answers: bundled, gguf:PATH, hf:NAME or "
        "openai:MODEL\\[@URL]. Default: COLLIGATE_MODEL, else the file of --config, else the "
        "OPENAI_* environment, else bundled.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
WorkerModel = Annotated[
    str | None,
    typer.Option(
        help="The model for the many small calls of some strategies. Default: "
        "COLLIGATE_WORKER_MODEL, else the file, else the model that reads.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Scorer = Annotated[
    str | None,
    typer.Option(
        help="The model asked for likelihoods, label odds and attention. Default: "
        "COLLIGATE_SCORER, else the file, else the model that reads.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Judge = Annotated[
    str | None,
    typer.Option(
        help="The model that judges answers. Default: COLLIGATE_JUDGE, else the file, else the "
        "model that reads.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Embedder = Annotated[
    str | None,
    typer.Option(
        help="What turns passages into vectors: minilm, static, openai:MODEL\\[@URL] or st:NAME. "
        "Default: COLLIGATE_EMBEDDER, else the file, else minilm.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Reranker = Annotated[
    str | None,
    typer.Option(
        help="What puts the passages found in a better order: none, embedding, likelihood, "
        "cross-encoder:NAME or http:MODEL@URL. Default: COLLIGATE_RERANKER, else the file, "
        "else none.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file that names models and library. Default: COLLIGATE_CONFIG, else "
        "colligate.toml here, else in your configuration folder.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
LibraryFolder = Annotated[
    Path | None,
    typer.Option(
        "--library",
        metavar="DIR",
        help="The folder of the library. Default: COLLIGATE_LIBRARY, else the file of --config, "
        "else your own, in your data directory.",
        rich_help_panel=LIBRARY,
        show_default=False,
    ),
]
Wait = Annotated[
    float,
    typer.Option(
        min=0.0,
        metavar="SECONDS",
        help="How long to wait while another process holds the library.",
        rich_help_panel=LIBRARY,
    ),
]
Cache = Annotated[
    bool,
    typer.Option(
        "--cache",
        help="Keep the model's replies in the library's folder: the same question over the "
        "same documents is paid for once.",
        rich_help_panel=LIMITS,
    ),
]
MaxTokensTotal = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="N",
        help="The most tokens all model calls may take together, in and out.",
        rich_help_panel=LIMITS,
        show_default=False,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        min=0.001,
        metavar="SECONDS",
        help="The longest the whole run may take.",
        rich_help_panel=LIMITS,
        show_default=False,
    ),
]
Trace = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Write every step to FILE as it happens, as JSON lines.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=OUTPUT),
]


def given(parameters: list[str] | None, router_adapter: str | None) -> list[str]:
    """What `--router-adapter` and `--set` set, the latter above the former."""
    adapter = [f"router_adapter={router_adapter}"] if router_adapter else []
    return [*adapter, *(parameters or [])]
