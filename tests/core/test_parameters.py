"""A strategy's parameters as a person writes them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

import pytest

from colligate.core.parameters import list_parameters, set_parameters
from colligate.core.strategy import list_strategies, load_strategy
from colligate.errors import UsageError
from colligate.library import SearchMode
from colligate.strategies.direct import Direct


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


@dataclass(frozen=True)
class Everything:
    name: ClassVar[str] = "everything"
    PAPER: ClassVar[Mapping[str, str]] = {"k": "10", "colour": "green", "cap": "7"}

    k: int = 5
    share: float = 0.5
    quick: bool = False
    prompt: str = "plain"
    colour: Colour = Colour.RED
    on_nothing: Literal["passages", "nothing"] = "nothing"
    cap: int | None = None
    skipped: tuple[str, ...] = ()
    colours: tuple[Colour, ...] = (Colour.RED, Colour.GREEN)
    measure: Callable[[str], int] = field(default=len)

    def __post_init__(self) -> None:
        if self.k < 1:
            raise ValueError("k is at least 1")


def test_each_type_is_read_as_it_is_written():
    made = set_parameters(
        Everything,
        ["k=3", "share=0.25", "quick=YES", "prompt=a=b", "colour=green",
         "on_nothing=passages", "cap=7", "skipped=See also, Notes,", "colours=green"],
    )  # fmt: skip
    assert made == Everything(
        3, 0.25, True, "a=b", Colour.GREEN, "passages", 7, ("See also", "Notes"), (Colour.GREEN,)
    )
    assert isinstance(made.colour, Colour)


def test_none_empty_and_the_last_of_two():
    made = set_parameters(Everything, ["cap=3", "cap=none", "skipped=", "k=1", " k = 2 "])
    assert (made.cap, made.skipped, made.k) == (None, (), 2)


def test_the_papers_settings_come_before_those_that_are_given():
    assert set_parameters(Everything, ["preset=paper"]) == Everything(
        10, colour=Colour.GREEN, cap=7
    )
    made = set_parameters(Everything, ["k=3", "cap=none", "preset=paper"])
    assert made == Everything(3, colour=Colour.GREEN)
    assert set_parameters(Direct, ["preset=paper"]) == Direct(), "it has none, and takes it"


def test_parameters_are_listed_with_type_default_and_the_papers_value():
    assert [(p.name, p.type, p.default, p.paper) for p in list_parameters(Everything)] == [
        ("k", "int", 5, 10),
        ("share", "float", 0.5, 0.5),
        ("quick", "bool", False, False),
        ("prompt", "str", "plain", "plain"),
        ("colour", "red|green", "red", "green"),
        ("on_nothing", "passages|nothing", "nothing", "nothing"),
        ("cap", "int|none", None, 7),
        ("skipped", "str,...", [], []),
        ("colours", "red|green,...", ["red", "green"], ["red", "green"]),
    ]  # a function is no text


@dataclass(frozen=True)
class Base:
    """Look at passages.

    Attributes:
        k: passages that are looked at
        words: words of each, counted
            as the text has them
    """

    k: int = 1
    words: int = 2


@dataclass(frozen=True)
class Further(Base):
    """Look at passages again.

    Attributes:
        k: passages of each look

    Nothing else is read.
    """

    mode: SearchMode | None = None
    more: int = 3


def test_the_docstrings_say_what_each_parameter_does():
    assert {p.name: p.description for p in list_parameters(Further)} == {
        "k": "passages of each look",
        "words": "words of each, counted as the text has them",
        "mode": "search by meaning (dense), by words (sparse), or by both (hybrid)",
        "more": "",
    }


@pytest.mark.parametrize("name", list_strategies())
def test_every_parameter_is_described_and_nothing_else(name):
    kind = load_strategy(name)
    parameters = list_parameters(kind)
    assert [each.name for each in parameters if not each.description] == []
    own = (kind.__doc__ or "").partition("Attributes:\n")[2]
    assert set(re.findall(r"^ {8}(\w+):", own, re.MULTILINE)) <= {each.name for each in parameters}


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("quik=true", "everything has no parameter 'quik': known are k, share, quick, "),
        ("quik=true", "did you mean quick?"),
        ("measure=len", "everything has no parameter 'measure'"),
        ("=3", "has no parameter ''"),
        ("quick", "no value for quick of everything; write quick=VALUE"),
        ("k=three", "cannot set k of everything: expected a valid integer, got 'three'"),
        ("k=2.5", "expected a valid integer"),
        ("k=", "got ''"),
        ("cap=all", "expected a valid integer, got 'all'"),
        ("share=half", "expected a valid number, got 'half'"),
        ("share=nan", "expected a finite number, got 'nan'"),
        ("share=1e999", "expected a finite number"),
        ("quick=maybe", "expected a valid boolean, got 'maybe'"),
        ("colour=blue", "expected 'red' or 'green', got 'blue'"),
        ("on_nothing=read", "expected 'passages' or 'nothing', got 'read'"),
        ("colours=green,blue", "expected 'red' or 'green'"),
        ("k=0", "wrong parameters for everything: k is at least 1"),
        ("preset=papers", "there is no preset 'papers'; write preset=paper"),
        ("preset", "there is no preset ''"),
    ],
)
def test_what_is_wrong_is_one_line(setting, says):
    with pytest.raises(UsageError) as raised:
        set_parameters(Everything, [setting])
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", list_strategies())
def test_every_default_can_be_written_as_text(name):
    kind = load_strategy(name)
    for parameter in list_parameters(kind):
        default = parameter.default
        text = ",".join(default) if isinstance(default, list) else str(default)
        assert set_parameters(kind, [f"{parameter.name}={text}"]) == kind()
