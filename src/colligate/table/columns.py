"""The columns of a table: what is looked up in each document, and what kind of value it is."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

from pydantic import ConfigDict, TypeAdapter, ValidationError

from colligate.errors import UsageError

Type = Literal["", "text", "number", "money", "date", "yes/no", "choice"]
"""What a value is; "" is a number, a date or a text, as the document has it."""

_MOST_COLUMNS = 50
_FORMATS: Mapping[str, Type] = {"number": "number", "integer": "number", "boolean": "yes/no"}
_SHAPES = {"yes/no": {"type": "boolean"}}


@dataclass(frozen=True)
class Column:
    """A column: its name, the kind of its values, what else the reader must know of it.

    A value of the type "choice" is one of `choices`. With `many` a document may have several.
    """

    name: str
    type: Type = ""
    note: str = ""
    choices: tuple[str, ...] = ()
    many: bool = False
    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > 200:
            raise UsageError("a column needs a name of at most 200 characters")
        if (self.type == "choice") != bool(self.choices):
            raise UsageError(f"the column {self.name!r} must have choices if its type is choice")

    @property
    def key(self) -> str:
        """What a value of the column depends on."""
        return hashlib.sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]

    @property
    def text(self) -> str:
        """The column as `parse_columns` reads it, without its note."""
        kind = "|".join(self.choices) or ("list" if self.many else self.type)
        return f"{self.name}: {kind}" if kind else self.name

    @property
    def label(self) -> str:
        """What the reader looks up."""
        said = f"{self.name} ({self.note})" if self.note else self.name
        return f"{said}: all of them" if self.many else said

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the values, which are as the document writes them."""
        one = {"enum": [*self.choices]} if self.choices else _SHAPES.get(self.type)
        return {"type": "array", "items": one or {"type": "string"}, "description": self.label}


@dataclass(frozen=True)
class Layout:
    """The columns of a table, what a row is if not a document, and the files and folders read."""

    columns: tuple[Column, ...]
    rows: str = ""
    sources: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        names = [each.name for each in self.columns]
        if not names or len(names) > _MOST_COLUMNS or len(set(names)) < len(names):
            what = f"a table has 1 to {_MOST_COLUMNS} columns, each with a name of its own"
            raise UsageError(what, hint='name them: "annual rent; ends on: date"')


def parse_layout(text: str) -> Layout:
    """Return the columns that a text names, or a file: a JSON Schema, or a TOML file of a table.

    A text is `NAME; NAME: TYPE; NAME: ONE|OTHER`. Commas separate too, if there is no semicolon.

    >>> [each.type for each in parse_layout("rent: money, ends on: date, law").columns]
    ['money', 'date', '']
    """
    path = Path(text)
    if path.suffix in (".toml", ".json"):
        return _read_file(path)
    return Layout(parse_columns(text))


def parse_columns(text: str) -> tuple[Column, ...]:
    """Return the columns that a text names, which is never taken for the name of a file."""
    separator = ";" if ";" in text else ","
    return tuple(_parse_column(each) for each in text.split(separator) if each.strip())


def _parse_column(text: str) -> Column:
    name, colon, kind = (each.strip() for each in text.rpartition(":"))
    if not colon:
        return Column(kind)
    if "|" in kind:
        return Column(name, "choice", choices=tuple(each.strip() for each in kind.split("|")))
    if kind == "list":
        return Column(name, many=True)
    type_: Type | None = next((each for each in get_args(Type) if each == kind), None)
    if not (name and type_):
        types = ", ".join([*filter(None, get_args(Type)), "list"])
        raise UsageError(f"no type {kind!r} of a column", f"types are {types}", "write NAME: TYPE")
    return Column(name, type_)


def _read_file(path: Path) -> Layout:
    """Return the layout that a file describes.

    Raises:
        UsageError: it cannot be read, or describes no columns.
    """
    try:
        content = path.read_bytes()
        said = json.loads(content) if path.suffix == ".json" else tomllib.loads(content.decode())
        if path.suffix == ".json":
            return Layout(tuple(_of_schema(*each) for each in said["properties"].items()))
        columns = [{"name": name, **given} for name, given in said.pop("columns").items()]
        return TypeAdapter(Layout).validate_python({"columns": columns, **said})
    except OSError as error:
        raise UsageError(f"cannot read {path}", error.strerror or str(error)) from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        why = f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
        raise UsageError(f"{path} describes no table", why) from error
    except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
        why = f"{type(error).__name__}: {str(error)[:200]}"
        raise UsageError(f"{path} describes no table", why, "docs/table.md shows one") from error


def _of_schema(name: str, given: Mapping[str, Any]) -> Column:
    """Return the column of a property of a JSON Schema."""
    many = given.get("type") == "array"
    one = given.get("items", {}) if many else given
    kinds = one.get("type", "")
    kind = next(
        (each for each in ([kinds] if isinstance(kinds, str) else kinds) if each != "null"), ""
    )
    choices = tuple(str(each) for each in one.get("enum", ()) if each is not None)
    if choices:
        type_: Type = "choice"
    elif one.get("format") in ("date", "money"):
        type_ = one["format"]
    else:
        type_ = _FORMATS.get(kind, "text")
    return Column(name, type_, str(given.get("description", "")), choices, many)


def write_layout(layout: Layout) -> str:
    """Return a layout as TOML, which `parse_layout` reads."""
    lines = [f"sources = {_toml(layout.sources)}"]
    if layout.rows:
        lines.append(f"rows = {_toml(layout.rows)}")
    for column in layout.columns:
        given = asdict(column)
        lines.append(f"\n[columns.{_toml(given.pop('name'))}]")
        lines += [f"{name} = {_toml(value)}" for name, value in given.items() if value]
    return "\n".join(lines) + "\n"


def _toml(value: str | bool | Sequence[str]) -> str:
    """Return a text, a truth or texts as TOML, which writes them as JSON does."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
