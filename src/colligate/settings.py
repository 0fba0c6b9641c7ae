"""Settings: which models, embedder, reranker and library to use, from the environment and a file.

A flag or a field of `Engine` comes first, then the environment, then `colligate.toml`, then the
default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import platformdirs
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from colligate.core.parameters import describe_invalid
from colligate.errors import UsageError, closest
from colligate.models.base import Role
from colligate.models.names import (
    PRIVATE_OPTIONS,
    Options,
    anchor_name,
    find_option_problem,
    may_send_key,
    normalize_name,
)

FILE = "colligate.toml"
PROJECT = "pyproject.toml"  # its table [tool.colligate]

_VARIABLES = {
    "reader": "COLLIGATE_MODEL",
    "worker": "COLLIGATE_WORKER_MODEL",
    "scorer": "COLLIGATE_SCORER",
    "judge": "COLLIGATE_JUDGE",
    "embedder": "COLLIGATE_EMBEDDER",
    "reranker": "COLLIGATE_RERANKER",
    "check": "COLLIGATE_CHECK",
    "reading": "COLLIGATE_READER",
    "retriever": "COLLIGATE_RETRIEVER",
    "library": "COLLIGATE_LIBRARY",
    "ocr": "COLLIGATE_OCR",
    "pdf": "COLLIGATE_PDF",
    "chunker": "COLLIGATE_CHUNKER",
    "risk": "COLLIGATE_RISK",
}
_PLAIN = ("reading", "retriever", "ocr", "pdf", "chunker", "risk")
_MODELS = tuple(name for name in _VARIABLES if name not in ("library", *_PLAIN))
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Named:
    """A name, and the variable or file that it comes from; `source` is "" for a flag or field.

    `with_key`: whether a key from the environment may be sent to the endpoint it names.
    """

    name: str
    source: str = ""
    with_key: bool = True


@dataclass(frozen=True)
class Settings:
    """The names of each role's model, embedder, reranker, check and library; None if not named.

    `reading` names how passages are read: auto, quoting or pointwise; `retriever` how they are
    found (`colligate.retrievers`).
    `ocr` names the languages in which scanned PDFs and pictures are read; None leaves them unread.
    `pdf` names what reads PDFs, `chunker` what cuts documents into passages.
    `risk` is the share of answers given that may be wrong, a number or a word (`parse_risk`).
    `options` are how models are opened, by model name. `file` is the file that was read, and
    `trusted` whether a person chose it: a `colligate.toml` in the working folder may have come with
    the documents, so no key is sent to an endpoint that only this file names. `Settings()` names
    nothing.
    """

    reader: Named | None = None
    worker: Named | None = None
    scorer: Named | None = None
    judge: Named | None = None
    embedder: Named | None = None
    reranker: Named | None = None
    check: Named | None = None
    reading: Named | None = None
    retriever: Named | None = None
    library: Named | None = None
    ocr: Named | None = None
    pdf: Named | None = None
    chunker: Named | None = None
    risk: Named | None = None
    options: Mapping[str, Options] = field(default_factory=dict)
    file: Path | None = None
    trusted: bool = True

    @classmethod
    def load(cls, path: str | Path | None = None) -> Settings:
        """Read the environment, and a file for what the environment does not name.

        The file is `path`, or COLLIGATE_CONFIG, or `colligate.toml` in the working folder, or a
        `pyproject.toml` there that has a table `tool.colligate`, or the `colligate.toml` in the
        user's configuration folder. The last three need not exist. UsageError if the file cannot be
        read, or something in it is not valid.
        """
        file, trusted = _find(path or os.environ.get("COLLIGATE_CONFIG"))
        settings = cls() if file is None else _read(file, trusted)
        named: dict[str, Any] = {
            what: Named(value, variable)
            for what, variable in _VARIABLES.items()
            if (value := os.environ.get(variable))
        }
        return replace(settings, **named)

    def override(self, **names: object) -> Settings:
        """Return a copy with other names, e.g. `override(reader="bundled", judge=None)`.

        What is not a string (None, or a model instead of its name) changes nothing.
        """
        given: dict[str, Any] = {what: Named(n) for what, n in names.items() if isinstance(n, str)}
        return replace(self, **given)

    def of(self, role: Role) -> Named | None:
        named: Named | None = getattr(self, role.value)
        return named

    def ocr_languages(self, *, asked: bool) -> str:
        """Return the languages of OCR: those named, else English if it is asked for, else none."""
        return self.ocr.name if self.ocr else "eng" if asked else ""

    def options_of(self, name: str) -> Options:
        """Return the options that the file gives for a model."""
        if not self.options:
            return {}
        known = {normalize_name(each): options for each, options in self.options.items()}
        return known.get(normalize_name(anchor_name(name, Path.cwd())), {})


def own_file() -> Path:
    """Return the path of the file in the user's configuration folder, which may not exist."""
    return platformdirs.user_config_path("colligate", appauthor=False) / FILE


def _find(chosen: str | Path | None) -> tuple[Path | None, bool]:
    """Return the file to read, if any, and whether it is trusted."""
    if chosen:
        return Path(chosen).expanduser(), True
    here, project, own = Path(FILE), Path(PROJECT), own_file()
    # Not `Path.is_file`, which raises where a folder above may not be looked into.
    if os.path.isfile(here):  # noqa: PTH113
        return here, os.path.isfile(own) and here.samefile(own)  # noqa: PTH113
    if os.path.isfile(project) and _parse(project) is not None:  # noqa: PTH113
        return project, False
    return (own, True) if os.path.isfile(own) else (None, True)  # noqa: PTH113


_Name = Annotated[str, Field(pattern=r"\S")]


def _name_number(given: object) -> object:
    return str(given) if isinstance(given, float) else given


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


# No `default=None`, which TOML cannot say, so the schema would be wrong.
_optional: Any = Field(default_factory=lambda: None)
_named: Any = dict.fromkeys(_MODELS, (_Name, _optional))
_plain: Any = dict.fromkeys(("library", *_PLAIN), (_Name, _optional))
_number = BeforeValidator(_name_number, json_schema_input_type=_Name | float)
_plain["risk"] = (Annotated[_Name, _number], _optional)
_Models = create_model("Models", __base__=_Table, **_named)
_Tables = dict[_Name, dict[str, Any]]
_Content = create_model(
    FILE,
    __base__=_Table,
    models=(_Models, Field(default_factory=_Models)),
    options=(_Tables, Field(default_factory=dict)),
    **_plain,
)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a settings file, for editors (docs/colligate.schema.json)."""
    return _Content.model_json_schema()


def _parse(file: Path) -> Any:
    """Return the settings in a file; of a `pyproject.toml` those of our table, or None."""
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(f"cannot use {file}", f"it is larger than {_MOST_BYTES:,} bytes")
        said = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"cannot read {file}", error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        hint = "docs/guide.md shows one"
        raise UsageError(f"{file} is not valid TOML", str(error), hint) from error
    if file.name != PROJECT:
        return said
    tools = said.get("tool")
    return tools.get("colligate") if isinstance(tools, dict) else None


def _read(file: Path, trusted: bool) -> Settings:
    try:
        read: Any = _Content.model_validate(_parse(file))
    except ValidationError as error:
        raise _explain(error, file) from error
    folder, source = file.absolute().parent, str(file)
    named: dict[str, Any] = {}
    for what in _VARIABLES:
        name, with_key = getattr(read.models if what in _MODELS else read, what), True
        if name is None:
            continue
        if what in _MODELS:
            name = anchor_name(name, folder)
            with_key = trusted or may_send_key(name)
        elif what == "library" and not name.startswith("s3:"):
            name = str(folder / os.path.expanduser(name))  # noqa: PTH111 (pathlib may refuse)
        named[what] = Named(name, source, with_key)
    for name, options in read.options.items():
        for option, setting in options.items():
            if why := find_option_problem(name, option, setting):
                raise UsageError(f'{file}: options."{name}".{option}', *why)
            if not trusted and option in PRIVATE_OPTIONS:
                why = "the file may have come with the documents", f"--config {file} trusts it"
                raise UsageError(f'{file}: options."{name}".{option} is not used', *why)
    return Settings(
        **named,
        options={anchor_name(name, folder): options for name, options in read.options.items()},
        file=file,
        trusted=trusted,
    )


def _explain(error: ValidationError, file: Path) -> UsageError:
    """Return the error of the first wrong entry, with file and key."""
    first = error.errors(include_url=False)[0]
    within = ("tool", "colligate") if file.name == PROJECT else ()
    *tables, key = map(str, (*within, *first["loc"]))
    prefix = "".join(f"{each}." for each in tables)
    if first["type"] == "extra_forbidden":
        known = _MODELS if len(first["loc"]) > 1 else tuple(_Content.model_fields)
        return _unknown(file, prefix, key, known)
    if first["type"] in ("dict_type", "model_type"):
        why = f"expected a table, got {first['input']!r}"[:200]
        hint = f"write [{prefix}{key}] above its entries"
        return UsageError(f"{file}: {prefix}{key}", why, hint)
    why = f"{describe_invalid(error)}, got {first['input']!r}"[:200]
    return UsageError(f"{file}: {prefix}{key}", why, 'a name is written in quotes: "bundled"')


def _unknown(file: Path, prefix: str, key: str, known: Sequence[str]) -> UsageError:
    near = closest(key, known)
    hint = f"did you mean {prefix}{near}?" if near else f"the keys are {', '.join(known)}"
    return UsageError(f"{file}: {prefix}{key}", "unknown key", hint)
