"""Options that several commands share.

Help texts are read as rich markup, where `\\[` is a bracket.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODELS = "Models"
LIBRARY = "Library"
OUTPUT = "Output"
LIMITS = "Limits"

Model = Annotated[
    str | None,
    typer.Option(
        help="The model that reads and answers: bundled, gguf:PATH or openai:MODEL\\[@URL]. "
        "Default: COLLIGATE_MODEL, else the OPENAI_* environment, else bundled.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Embedder = Annotated[
    str,
    typer.Option(
        help="What turns passages into vectors: minilm, static, openai:MODEL\\[@URL] or st:NAME.",
        rich_help_panel=MODELS,
    ),
]
LibraryFolder = Annotated[
    Path | None,
    typer.Option(
        "--library",
        metavar="DIR",
        help="The folder of the library. Default: COLLIGATE_LIBRARY, else your own, in your data "
        "directory.",
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
AsJson = Annotated[
    bool,
    typer.Option("--json", help="Print JSON, for programs.", rich_help_panel=OUTPUT),
]
