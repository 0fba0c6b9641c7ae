r"""Options that several commands share, and groups of them.

A group is a dataclass; `command` gives a command an option for each of its fields. Help texts are
read as rich markup, where `\[` is a bracket.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colligate.cli import display
from colligate.errors import UsageError

if TYPE_CHECKING:
    from colligate.documents.reading import Limits
    from colligate.engine import Engine
    from colligate.library.library import AsyncLibrary

MODELS = "Models"
LIBRARY = "Library"
OUTPUT = "Output"
LIMITS = "Limits"
# What few people need: only `--help-all` and the completion of a shell show such an option.
RESEARCH: dict[str, Any] = {"hidden": "_COLLIGATE_COMPLETE" not in os.environ}


def option(
    help: str,
    panel: str,
    *names: str,
    metavar: str | None = None,
    default: bool = False,
    **more: Any,
) -> Any:
    """Return an option; `default` shows its default in the help."""
    return typer.Option(
        *names, help=help, rich_help_panel=panel, metavar=metavar, show_default=default, **more
    )


def argument(help: str, metavar: str) -> Any:
    """Return a value that is given by its place."""
    return typer.Argument(metavar=metavar, help=help, show_default=False)


def named(
    help: str,
    variable: str,
    last: str,
    panel: str = MODELS,
    metavar: str | None = None,
    **more: Any,
) -> Any:
    """Return an option that environment and settings file name too; `last` is the default."""
    order = f"Default: COLLIGATE_{variable}, then the settings file, then {last}."
    return option(f"{help} {order}", panel, metavar=metavar, **more)


def parse_workers(text: str | None) -> int | str | None:
    """Return a number of processes, or what names a cluster.

    >>> parse_workers("4"), parse_workers("ray:10.0.0.1:6379")
    (4, 'ray:10.0.0.1:6379')
    """
    if text is None or text.partition(":")[0] == "ray":
        return text
    if not text.isdecimal() or not int(text):
        must = f"--workers must be a number of processes or ray, got {text}"
        raise UsageError(must, hint="give 4, ray or ray:HOST:PORT")
    return int(text)


def read_json(path: Path) -> Any:
    """Return what a JSON file says, of at most 16 MiB."""
    import json

    why = "it has more than 16 MiB"
    try:
        if path.stat().st_size <= 1 << 24:
            return json.loads(path.read_bytes())
    except OSError as error:
        why = error.strerror or str(error)
    except (ValueError, RecursionError) as error:
        why = f"it is not JSON ({error})"
    raise UsageError(f"cannot read {path}", why, "check the file")


Question = Annotated[str, argument("What to ask.", "QUESTION")]
Paths = Annotated[
    list[str] | None,
    argument(
        "Files, folders and https: addresses to answer over. Default: the whole library.", "PATH..."
    ),
]
Where = Annotated[
    list[str] | None,
    option(
        "Only documents that meet a condition, such as date>=2024, language=de or "
        "title~annual; may be repeated.",
        LIBRARY,
        "--where",
        metavar="CONDITION",
    ),
]
Judge = Annotated[
    str | None, named("The model that judges answers.", "JUDGE", "--model", **RESEARCH)
]
Embedder = Annotated[
    str | None,
    named(
        "The embedder of passages: minilm, static, e5 (many languages), openai:MODEL\\[@URL] or "
        "st:NAME.",
        "EMBEDDER",
        "the library's own; a new library takes minilm, or e5 for other languages than English",
        **RESEARCH,
    ),
]
Reranker = Annotated[
    str | None,
    named(
        "The reranker of the passages found: none, minilm, cross-encoder:NAME, onnx:FOLDER "
        "(of `colligate train head`) or http:MODEL@URL.",
        "RERANKER",
        "the strategy's own; `bench run` has none then",
        **RESEARCH,
    ),
]
Reader = Annotated[
    str | None,
    named(
        "How passages are read: quoting (all in one prompt), pointwise (the passage that most "
        "likely answers alone: for small models) or auto.",
        "READER",
        "auto: pointwise for a model in this process of less than 7 billion weights",
        **RESEARCH,
    ),
]
Check = Annotated[
    str | None,
    named(
        "What judges whether the quotes support a statement: model (one call of the reader), odds "
        "(its label odds), head (in the package), hf:NAME (an entailment model), onnx:FOLDER (of "
        "`colligate train head`) or none.",
        "CHECK",
        "odds for the pointwise reader, model for others",
        **RESEARCH,
    ),
]
Retriever = Annotated[
    str | None,
    named(
        "How evidence is found, in every search: hybrid, dense, sparse, sfs, rdr2, "
        "longrefiner:budget=512 (any NAME:k=v,...), or http:URL, a retriever server.",
        "RETRIEVER",
        "hybrid, or what the strategy sets",
        metavar="NAME[:k=v]",
        **RESEARCH,
    ),
]
Config = Annotated[
    Path | None,
    option(
        "The settings file, which names models and library. Default: COLLIGATE_CONFIG, then "
        "colligate.toml here, then \\[tool.colligate] of pyproject.toml here, then the one "
        "in your configuration folder.",
        MODELS,
        metavar="FILE",
    ),
]
LibraryFolder = Annotated[
    Path | None,
    named(
        "The library: its folder, or s3://BUCKET/NAME.",
        "LIBRARY",
        "your own library in your data folder",
        LIBRARY,
        "DIR",
    ),
]
LibraryEngine = Annotated[
    str | None,
    option(
        "The storage engine of a new library: sqlite, or lance, which has snapshots. Later "
        "commands need not name it; at s3:// it is always lance. Default: sqlite.",
        LIBRARY,
        "--engine",
        metavar="NAME",
    ),
]
Workers = Annotated[
    str | None,
    option(
        "How many processes read files; or ray, ray:HOST:PORT: the workers of a Ray cluster read "
        "and embed. Default: one a core, at most 8.",
        LIBRARY,
        "--workers",
        metavar="N|ray",
    ),
]
Ocr = Annotated[
    bool,
    option(
        "Read scanned PDFs and pictures by OCR, in the languages of COLLIGATE_OCR (eng+deu) or of "
        "the settings file, else in English.",
        LIBRARY,
        "--ocr",
    ),
]
Pdf = Annotated[
    str | None,
    named(
        "The program that reads new and changed PDFs: liteparse, or docling with layout models, "
        "which you install.",
        "PDF",
        "liteparse",
        LIBRARY,
        "NAME",
    ),
]
Chunker = Annotated[
    str | None,
    named(
        "How documents are cut into passages: structural, words:N, or tokens:N/OVERLAP (windows of "
        "estimated tokens). A library cuts all its documents alike.",
        "CHUNKER",
        "as the library's other documents; a new one: structural",
        LIBRARY,
        "NAME",
        **RESEARCH,
    ),
]
MaxTokensTotal = Annotated[
    int | None,
    option(
        "The most tokens that all model calls may take together, input and output.",
        LIMITS,
        metavar="N",
        min=1,
    ),
]
AsJson = Annotated[bool, option("Print JSON, for programs.", OUTPUT, "--json")]


# Options of every command. Each takes effect when it is parsed: no command handles them.


def _of_all(help: str, panel: str | None, callback: Callable[..., None], *names: str) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, is_eager=True, callback=callback)


def _set_loudness(chosen: typer.CallbackParam, wanted: bool) -> None:
    if wanted:
        display.loudness = str(chosen.name)


def _stop_color(wanted: bool) -> None:
    if wanted:
        os.environ["NO_COLOR"] = "1"


def _show_all(context: typer.Context, wanted: bool) -> None:
    if wanted:
        for each in context.command.params:
            each.hidden = False  # type: ignore[attr-defined]  # arguments too
        typer.echo(context.get_help())
        raise typer.Exit


_QUIET = "Show no progress and no notes; errors and warnings stay."
_ALL = "Show all options, also those for research, and exit."
Quiet = Annotated[bool, _of_all(_QUIET, OUTPUT, _set_loudness, "--quiet", "-q")]
Verbose = Annotated[
    bool, _of_all("Show each step as a line.", OUTPUT, _set_loudness, "--verbose", "-v")
]
NoColor = Annotated[bool, _of_all("Use no colors.", OUTPUT, _stop_color, "--no-color")]
_HelpAll = Annotated[bool, _of_all(_ALL, None, _show_all, "--help-all")]
OF_ALL_COMMANDS = {"quiet": Quiet, "verbose": Verbose, "no_color": NoColor, "help_all": _HelpAll}


@dataclass(frozen=True)
class ReadOptions:
    """How files are read."""

    ocr: Ocr = False
    pdf: Pdf = None

    def limits(self) -> Limits:
        """Return how files are read without a library; what reads them is on this machine."""
        from colligate.documents.reading import Limits
        from colligate.documents.reading.pdf.docling import require_reader
        from colligate.settings import Settings

        settings = Settings.load()
        pdf = self.pdf or (settings.pdf.name if settings.pdf else "")
        require_reader(pdf)
        return Limits(ocr=settings.ocr_languages(asked=self.ocr), pdf=pdf)


@dataclass(frozen=True)
class AddOptions(ReadOptions):
    """How files are read into a library."""

    workers: Workers = None


@dataclass(frozen=True)
class RoleOptions:
    """The models of the roles that answer."""

    model: Annotated[
        str | None,
        named(
            "The model that reads and answers: bundled, qwen3-4b, gguf:PATH, hf:NAME or "
            "openai:MODEL\\[@URL].",
            "MODEL",
            "the OPENAI_* environment, then bundled",
        ),
    ] = None
    worker_model: Annotated[
        str | None,
        named(
            "The model for the many small calls of some strategies.",
            "WORKER_MODEL",
            "--model",
            **RESEARCH,
        ),
    ] = None
    scorer: Annotated[
        str | None,
        named(
            "The model that gives likelihoods, label odds and attention.",
            "SCORER",
            "--model",
            **RESEARCH,
        ),
    ] = None


@dataclass(frozen=True)
class ModelOptions(RoleOptions):
    """All models that a question needs, and the file that names those not given."""

    embedder: Embedder = None
    reranker: Reranker = None
    reader: Reader = None
    check: Check = None
    retriever: Retriever = None
    config: Config = None

    def engine(self, *groups: Any, **more: Any) -> Engine:
        """Return an engine with the options of these groups; nothing is opened yet."""
        return make_engine(self, *groups, **more)


@dataclass(frozen=True)
class EngineOptions(ModelOptions):
    """What an engine is opened with."""

    library: LibraryFolder = None


@dataclass(frozen=True)
class RunOptions:
    """Parameters, limits and output of a run over one question."""

    parameters: Annotated[
        list[str] | None,
        option(
            "Set a parameter; may be repeated. `colligate strategies NAME` lists the parameters.",
            MODELS,
            "--set",
            metavar="NAME=VALUE",
            **RESEARCH,
        ),
    ] = None
    max_tokens_total: MaxTokensTotal = None
    timeout: Annotated[
        float | None,
        option("The longest time the run may take.", LIMITS, metavar="SECONDS", min=0.001),
    ] = None
    as_json: AsJson = False
    trace: Annotated[
        Path | None,
        option(
            "Write every step to FILE as it happens, as JSON lines.",
            OUTPUT,
            metavar="FILE",
            **RESEARCH,
        ),
    ] = None

    def limits(self, effort: str | None = None) -> dict[str, Any]:
        """Return the limits of `Engine.ask`; what `--set` sets replaces `effort`."""
        given = [f"effort={effort}"] if effort else []
        return {
            "parameters": [*given, *(self.parameters or [])],
            "max_tokens_total": self.max_tokens_total,
            "timeout": self.timeout,
        }


@dataclass(frozen=True)
class LibraryOptions:
    """Which library, with which embedder."""

    library: LibraryFolder = None
    embedder: Embedder = None
    config: Config = None

    @asynccontextmanager
    async def engine(self, *groups: Any, **more: Any) -> AsyncIterator[Engine]:
        """Yield an engine for the library alone."""
        async with make_engine(self, *groups, **more) as engine:
            named = engine.named.library
            if named is not None and named.source == str(engine.named.file):
                display.note(f"library: {named.name} ({named.source})")
            yield engine

    @asynccontextmanager
    async def open(self) -> AsyncIterator[AsyncLibrary]:
        async with self.engine() as engine:
            yield await engine.open_library()


def make_engine(first: Any, *groups: Any, **more: Any) -> Engine:
    """Return an engine with the options of groups, and the settings that the first one names."""
    from colligate.engine import Engine
    from colligate.settings import Settings

    given = {k: v for group in (first, *groups) for k, v in vars(group).items()}
    known = {each.name: given[each.name] for each in fields(Engine) if each.name in given}
    return Engine(settings=Settings.load(first.config), **known, **more)
