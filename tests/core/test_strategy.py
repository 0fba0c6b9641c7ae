"""How strategies are found by name and made; what they must do is in colligate.testing."""

import dataclasses

import pytest

from colligate.core import list_strategies, make_strategy
from colligate.core.strategy import load_strategy, summarize
from colligate.errors import UnknownStrategy, UsageError
from support.plugins import installed


@pytest.mark.parametrize("name", list_strategies())
def test_a_strategy_is_a_frozen_dataclass_with_a_summary(name):
    kind = load_strategy(name)
    assert kind.name == name
    assert summarize(kind)
    assert dataclasses.is_dataclass(kind)
    made = make_strategy(name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        made.name = "other"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownStrategy, match="did you mean 'retrieve-read'"):
        make_strategy("retreive-read")


def test_an_unknown_parameter_is_a_wrong_call():
    with pytest.raises(UnknownStrategy, match="depth"):
        make_strategy("retrieve-read", depth=3)


def test_parameters_replace_the_papers_defaults():
    assert make_strategy("retrieve-read", k=3).k == 3


def test_a_strategy_that_cannot_be_imported_is_named_with_its_package(tmp_path):
    broken = "import no_such_module"
    with (
        installed(tmp_path, broken, {"strategies": {"lost": "toy:Lost"}}),
        pytest.raises(UsageError, match=r"cannot load 'lost' .*toy:Lost.*no_such_module"),
    ):
        load_strategy("lost")
