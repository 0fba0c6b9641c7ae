"""Suites and recipes are TOML files: those that come with colligate by name, others by path."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from colligate.errors import UsageError, closest

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
        """Return the text of a file, its name without an ending, and what errors call it.

        UsageError if there is no such file, of ours by its name or of the user's by its path.
        """
        if name in self.names():
            return self._place().joinpath(f"{name}.toml").read_text("utf-8"), name, f"{name}.toml"
        file = Path(name)
        if file.suffix != ".toml":
            hint = suggest(name, self.names())
            why = "a file of yours ends in .toml"
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


def explain_invalid(
    where: str, error: ValidationError, keys: Mapping[str, Sequence[str]]
) -> UsageError:
    """Return the error of the first fault: its key, why, and the known `keys` of its part ("")."""
    # A misspelt key is reported before the key that is missing because of it.
    every = error.errors()
    first = next((each for each in every if each["type"] in _UNKNOWN), every[0])
    loc = first["loc"] if len(keys) > 1 else first["loc"][:1]  # what follows names a type
    place = [str(part + 1) if isinstance(part, int) else str(part) for part in loc]
    what = f"{where}{'.'.join(place)}"
    if first["type"] in _UNKNOWN:
        known = keys.get(place[0] if len(place) > 1 else "", ())
        return UsageError(what, "unknown key", suggest(place[-1], known))
    return UsageError(what, first["msg"][0].lower() + first["msg"][1:])


def suggest(name: str, known: Sequence[str]) -> str:
    """Return a hint that names what was meant, or all there is."""
    near = closest(name, known)
    return f"did you mean {near}?" if near else f"there are {', '.join(known)}"
