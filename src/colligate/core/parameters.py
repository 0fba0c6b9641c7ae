"""Parameters of a strategy by name, with values as text: `k=3`, `no_expand=true`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, fields, is_dataclass
from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError

from colligate.core.events import to_plain
from colligate.errors import UsageError, closest

T = TypeVar("T")


@dataclass(frozen=True)
class Parameter:
    """A field of a strategy that can be set by text.

    `type` is how values are written: "int", "float", "bool", "str", the allowed names
    ("hybrid|dense|sparse"), any of these with "|none", or with ",..." for a list with commas.
    `default` and `paper` are JSON values: without a setting, and with `preset=paper`. `description`
    says in a phrase what it does: the docstring of the strategy has it in a section `Attributes:`,
    with a line "name: phrase" for each field.
    """

    name: str
    type: str
    default: Any
    paper: Any
    description: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the parameter as `colligate strategies --json` prints it."""
        return asdict(self)


def list_parameters(kind: type) -> tuple[Parameter, ...]:
    """List the parameters of a strategy that can be set, in the order of its fields."""
    said, paper = _read_attributes(kind), paper_settings(kind)
    return tuple(
        Parameter(
            name,
            written,
            to_plain(_default(field)),
            to_plain(_read(hint, paper[name]) if name in paper else _default(field)),
            said.get(name) or _SAME_EVERYWHERE.get(written.removesuffix("|none"), ""),
        )
        for name, (field, hint, written) in _settable(kind).items()
    )


# What values mean that many strategies take.
_SAME_EVERYWHERE = {
    "short|list|long|joined|each": "kind of answer: one short one, a list of all there are, an "
    "explanation (long), sentences that may each join several passages (joined), or what each "
    "document says, with a table (each)",
    "dense|sparse|hybrid": "search by meaning (dense), by words (sparse), or by both (hybrid)",
    "auto|documents|passages": "read whole documents, or passages of a search; auto: documents if "
    "they are few and short",
}


def _read_attributes(kind: type) -> dict[str, str]:
    """Return what the docstrings of a class and its bases say in `Attributes:`, by name."""
    found = {}
    for each in reversed(kind.__mro__):
        _, _, section = inspect.cleandoc(each.__doc__ or "").partition("\nAttributes:\n")
        for name, text in re.findall(r"^ {4}(\w+): (.+(?:\n {5,}.+)*)", section, re.MULTILINE):
            found[name] = " ".join(text.replace("`", "").split())
    return found


PRESET = "preset"


def paper_settings(kind: type) -> Mapping[str, str]:
    """Return what `preset=paper` sets: the strategy's `PAPER`, values as texts by name."""
    settings: Mapping[str, str] = getattr(kind, "PAPER", {})
    return settings


def split_setting(setting: str) -> tuple[str, str, str]:
    """Return name, "=" and value of a setting; the last two are empty without a "="."""
    name, equals, text = setting.partition("=")
    return name.strip(), equals, text.strip()


def set_parameters(kind: type[T], settings: Iterable[str]) -> T:
    """Make a strategy, or another dataclass of parameters, from texts such as "k=3".

    What is not named keeps its default; if a name comes twice the last one counts. `preset=paper`
    sets what the strategy's `PAPER` has, before all others; a class without one stays as it is.
    """
    name = _name(kind)
    settable = _settable(kind)
    values = {}
    for given, equals, text in _expand_presets(kind, settings):
        if given not in settable:
            there = f"known are {', '.join(settable)}" if settable else "it has no parameters"
            near = closest(given, [*settable, PRESET])
            hint = f"did you mean {near}?" if near else ""
            raise UsageError(f"{name} has no parameter {given!r}", there, hint)
        if not equals:
            raise UsageError(f"no value for {given} of {name}", "", f"write {given}=VALUE")
        try:
            values[given] = _read(settable[given][1], text)
        except ValidationError as error:
            why = f"{describe_invalid(error)}, got {text!r}"
            raise UsageError(f"cannot set {given} of {name}", why) from None
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:  # the dataclass itself refused
        raise UsageError(f"wrong parameters for {name}", str(error)) from error


def format_setting(value: Any) -> str:
    """Return a value as `set_parameters` reads it.

    >>> format_setting(["a", 2]), format_setting(None), format_setting(True)
    ('a,2', 'none', 'true')
    """
    if isinstance(value, list):
        return ",".join(map(format_setting, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _expand_presets(kind: type, settings: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    given = [split_setting(each) for each in settings]
    if presets := [text for name, _, text in given if name == PRESET]:
        if wrong := set(presets) - {"paper"}:
            raise UsageError(f"there is no preset {wrong.pop()!r}", "", f"write {PRESET}=paper")
        yield from ((name, "=", text) for name, text in paper_settings(kind).items())
    yield from (each for each in given if each[0] != PRESET)


def _name(kind: type) -> str:
    return str(getattr(kind, "name", kind.__name__.lower()))


def _settable(kind: type) -> Mapping[str, tuple[Field[Any], Any, str]]:
    """Return the fields whose values can be written as text, with their types, by name."""
    if not is_dataclass(kind):
        return {}
    try:
        hints = get_type_hints(kind)
    except NameError as error:
        raise UsageError(f"the parameters of {_name(kind)} cannot be read", str(error)) from error
    written = {field: _describe(hints[field.name]) for field in fields(kind) if field.init}
    return {field.name: (field, hints[field.name], how) for field, how in written.items() if how}


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING else field.default


def _describe(hint: Any) -> str:
    """Return how values of a type are written, "" if they cannot be."""
    origin, inner = get_origin(hint), get_args(hint)
    written = ""
    if origin in (Union, UnionType) and len(inner) == 2 and NoneType in inner:
        written = _describe(next(each for each in inner if each is not NoneType))
        return written and f"{written}|none"
    if origin is tuple and len(inner) == 2 and inner[1] is Ellipsis:
        written = _describe(inner[0])
        return written and f"{written},..."
    if origin is Literal and all(isinstance(each, str) for each in inner):
        return "|".join(inner)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return "|".join(hint)
    return hint.__name__ if hint in (bool, int, float, str) else ""


def _read(hint: Any, text: str) -> Any:
    """Return the value of a type that a text stands for. ValidationError if it stands for none."""
    given: Any = text
    if NoneType in get_args(hint) and text.lower() == "none":
        given = None
    elif get_origin(hint) is tuple:
        given = [each.strip() for each in text.split(",") if each.strip()]
    return TypeAdapter(hint, config=ConfigDict(allow_inf_nan=False)).validate_python(given)


def describe_invalid(error: ValidationError) -> str:
    """Return what a value had to be: "expected a valid integer"."""
    what = error.errors(include_url=False)[0]["msg"].removeprefix("Input should be ")
    return f"expected {what.partition(', unable to')[0]}"


def require_min(strategy: object, **least: float) -> None:
    """Check that fields have at least these values; None passes."""
    for name, smallest in least.items():
        value = getattr(strategy, name)
        if value is not None and value < smallest:
            raise UsageError(f"{name} is {value}", f"it must be {smallest} or more")
