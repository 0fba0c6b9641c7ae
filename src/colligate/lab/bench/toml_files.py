"""Suites and recipes are TOML files: those that come with colligate by name, others by path."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from colligate.errors import UsageError

_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")


@dataclass(frozen=True)
class TomlFolder:
    """The files `NAME.toml` in a folder of a package; `what` each of them is, for errors."""

    package: str
    folder: str
    what: str

    def names(self) -> tuple[str, ...]:
        """Return the names of the files that come with colligate."""
        found = (each.name for each in self._place().iterdir() if each.name.endswith(".toml"))
        return tuple(sorted(name.removesuffix(".toml") for name in found))

    def read(self, name: str) -> tuple[str, str, str]:
        """Return the text of a file, its name, and what errors call it; UsageError without one."""
        if name in self.names():
            return self._place().joinpath(f"{name}.toml").read_text("utf-8"), name, f"{name}.toml"
        file = Path(name)
        if file.suffix != ".toml":
            why = "a file of yours ends in .toml"
            hint = f"there are {', '.join(self.names())}"
            raise UsageError(f"there is no {self.what} {name!r}", why, hint)
        try:
            return file.read_text("utf-8"), file.stem, str(file)
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or str(error)
            raise UsageError(f"cannot read the {self.what} {file}", why) from error

    def _place(self) -> Any:
        return resources.files(self.package).joinpath(self.folder)


def parse_toml(text: str, file: str) -> dict[str, Any]:
    """Return the table of a file that has neither the key `name` nor `text`."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not valid TOML", str(error)) from error
    for key in ("name", "text"):
        if key in table:
            raise UsageError(f"{file}: {key}", "unknown key", "the file's name is the name")
    return table


def explain_invalid(where: str, error: ValidationError, *, nested: bool) -> UsageError:
    """Return the error of the first fault: its key and why; keys may be `nested` in parts."""
    # A misspelt key is reported before the key that is missing because of it.
    every = error.errors()
    first = next((each for each in every if each["type"] in _UNKNOWN), every[0])
    loc = first["loc"] if nested else first["loc"][:1]  # what follows names a type
    place = [str(part + 1) if isinstance(part, int) else str(part) for part in loc]
    why = "unknown key" if first["type"] in _UNKNOWN else first["msg"][0].lower() + first["msg"][1:]
    return UsageError(f"{where}{'.'.join(place)}", why)
