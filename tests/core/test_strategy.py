"""How strategies are found by name; what they must do is in colligate.testing."""

import dataclasses

import pytest

from colligate.core.strategy import list_strategies, load_strategy, summarize
from colligate.errors import UnknownStrategy, UsageError
from support.plugins import installed


@pytest.mark.parametrize("name", list_strategies())
def test_a_strategy_is_a_frozen_dataclass_with_a_summary(name):
    kind = load_strategy(name)
    assert kind.name == name
    assert summarize(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        kind().name = "other"


def test_an_unknown_name_is_answered_with_the_nearest():
    with pytest.raises(UnknownStrategy, match="did you mean 'retrieve-read'"):
        load_strategy("retreive-read")


def test_a_strategy_that_cannot_be_imported_is_named_with_its_package(tmp_path):
    broken = "import no_such_module"
    with (
        installed(tmp_path, broken, {"strategies": {"lost": "toy:Lost"}}),
        pytest.raises(UsageError, match=r"cannot load 'lost' .*toy:Lost.*no_such_module"),
    ):
        load_strategy("lost")
