"""Settings: which models, embedder, reranker and library to use, from the environment and a file.

A flag or a field of `Engine` comes first, then the environment, then `colligate.toml`, then the
default.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import platformdirs

from colligate.core.parameters import list_parameters
from colligate.core.strategy import list_adapter_steps
from colligate.errors import UsageError, closest
from colligate.models.base import Role
from colligate.models.names import (
    Options,
    anchor_adapter,
    anchor_name,
    find_option_problem,
    may_send_key,
    normalize_name,
)

FILE = "colligate.toml"

_VARIABLES = {
    "reader": "COLLIGATE_MODEL",
    "worker": "COLLIGATE_WORKER_MODEL",
    "scorer": "COLLIGATE_SCORER",
    "judge": "COLLIGATE_JUDGE",
    "embedder": "COLLIGATE_EMBEDDER",
    "reranker": "COLLIGATE_RERANKER",
    "check": "COLLIGATE_CHECK",
    "reading": "COLLIGATE_READER",
    "library": "COLLIGATE_LIBRARY",
    "ocr": "COLLIGATE_OCR",
    "pdf": "COLLIGATE_PDF",
    "chunker": "COLLIGATE_CHUNKER",
}
_PLAIN = ("reading", "ocr", "pdf", "chunker")
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

    `reading` names how passages are read: auto, quoting or pointwise.
    `ocr` names the languages in which scanned PDFs and pictures are read; None reads none of them.
    `pdf` names what reads PDFs, `chunker` what cuts documents into passages.
    `options` are how models are opened, by model name; `adapters` are those of strategies' steps,
    by step. `file` is the file that was read, and `trusted` whether a person chose it: a
    `colligate.toml` in the working folder may have come with the documents, so no key is sent to
    an endpoint that only this file names. `Settings()` names nothing.
    """

    reader: Named | None = None
    worker: Named | None = None
    scorer: Named | None = None
    judge: Named | None = None
    embedder: Named | None = None
    reranker: Named | None = None
    check: Named | None = None
    reading: Named | None = None
    library: Named | None = None
    ocr: Named | None = None
    pdf: Named | None = None
    chunker: Named | None = None
    options: Mapping[str, Options] = field(default_factory=dict)
    adapters: Mapping[str, Named] = field(default_factory=dict)
    file: Path | None = None
    trusted: bool = True

    @classmethod
    def load(cls, path: str | Path | None = None) -> Settings:
        """Read the environment, and a file for what the environment does not name.

        The file is `path`, or COLLIGATE_CONFIG, or `colligate.toml` in the working folder, or
        the one in the user's configuration folder. The last two need not exist.

        Raises:
            UsageError: the file cannot be read, or something in it is not valid.
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
        """Return the name of a role's model."""
        named: Named | None = getattr(self, role.value)
        return named

    def ocr_languages(self, *, asked: bool) -> str:
        """Return the languages of OCR: those named, else English if it is asked for, else none."""
        return self.ocr.name if self.ocr else "eng" if asked else ""

    def adapters_of(self, strategy: type) -> dict[str, Named]:
        """Return the adapters of a strategy, by parameter (`router_adapter`)."""
        named = {f"{step}_adapter": adapter for step, adapter in self.adapters.items()}
        return named and {
            each.name: named[each.name] for each in list_parameters(strategy) if each.name in named
        }

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
    here, own = Path(FILE), own_file()
    # Not `Path.is_file`, which raises where a folder above may not be looked into.
    if os.path.isfile(here):  # noqa: PTH113
        return here, os.path.isfile(own) and here.samefile(own)  # noqa: PTH113
    return (own, True) if os.path.isfile(own) else (None, True)  # noqa: PTH113


def _read(file: Path, trusted: bool) -> Settings:
    try:
        with file.open("rb") as opened:
            content = opened.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise UsageError(f"cannot use {file}", f"it is larger than {_MOST_BYTES:,} bytes")
        whole = tomllib.loads(content.decode())
    except OSError as error:
        raise UsageError(f"cannot read {file}", error.strerror or str(error)) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"{file} is not valid TOML", str(error), "docs/guide.md shows one"
        ) from error
    return _File(file, trusted).settings(whole)


@dataclass(frozen=True)
class _File:
    """Reads the tables of a file; its errors name the file and the key."""

    file: Path
    trusted: bool

    def settings(self, whole: Mapping[str, Any]) -> Settings:
        self._known(whole, ("models", "options", "adapters", "library", *_PLAIN), "")
        models = self._table(whole, "models")
        self._known(models, _MODELS, "models.")
        named = {what: self._model(what, value) for what, value in models.items()}
        if "library" in whole:
            given = self._text("library", whole["library"])
            folder = str(self._folder / os.path.expanduser(given))  # noqa: PTH111 (pathlib may refuse)
            named["library"] = Named(given if given.startswith("s3:") else folder, str(self.file))
        for key in _PLAIN:
            if key in whole:
                named[key] = Named(self._text(key, whole[key]), str(self.file))
        options = {
            anchor_name(name, self._folder): self._options(name, value)
            for name, value in self._table(whole, "options").items()
        }
        adapters = self._table(whole, "adapters")
        if adapters:
            self._known(adapters, list_adapter_steps(), "adapters.")
        return Settings(
            **named,
            options=options,
            adapters={step: self._adapter(step, value) for step, value in adapters.items()},
            file=self.file,
            trusted=self.trusted,
        )

    @property
    def _folder(self) -> Path:
        return self.file.absolute().parent

    def _model(self, what: str, value: Any) -> Named:
        name = anchor_name(self._text(f"models.{what}", value), self._folder)
        return Named(name, str(self.file), self.trusted or may_send_key(name))

    def _adapter(self, step: str, value: Any) -> Named:
        name = self._text(f"adapters.{step}", value).strip()
        return Named(anchor_adapter(name, self._folder), str(self.file))

    def _options(self, name: str, value: Any) -> Options:
        key = f'options."{name}"'
        if not isinstance(value, dict):
            raise self._wrong(key, _expected("a table", value))
        for option, setting in value.items():
            if why := find_option_problem(name, option, setting):
                raise self._wrong(f"{key}.{option}", *why)
        return value

    def _table(self, whole: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        table = whole.get(key, {})
        if not isinstance(table, dict):
            raise self._wrong(key, _expected("a table", table), f"write [{key}] above its entries")
        return table

    def _text(self, key: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(
                key, _expected("a name", value), 'write it in quotes, as in "bundled"'
            )
        return value

    def _known(self, table: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
        for key in table:
            if key not in known:
                near = closest(key, known)
                there = ", ".join(prefix + name for name in known)
                hint = f"did you mean {prefix}{near}?" if near else f"the keys are {there}"
                raise self._wrong(prefix + key, "unknown key", hint)

    def _wrong(self, key: str, why: str, hint: str = "") -> UsageError:
        return UsageError(f"{self.file}: {key}", why, hint)


def _expected(what: str, value: Any) -> str:
    return f"expected {what}, got {value!r}"[:200]
