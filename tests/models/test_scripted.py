"""The scripted model says, scores and refuses what it is told to."""

from __future__ import annotations

import pytest

from colligate.errors import MissingCapability
from colligate.models import Capability, LabelOdds, Message
from colligate.testing import ScriptedModel

ASK = [Message("user", "Is it?")]


async def test_functions_given_are_capabilities_and_what_is_said() -> None:
    model = ScriptedModel(
        likelihood=lambda prefix, continuation: [-float(len(prefix))] * len(continuation.split()),
        labels=lambda messages, labels, forced: LabelOdds({labels[0]: 1.0}, 0.5, (forced,)),
        attention=lambda prompt, spans: [end - start for start, end in spans],
    )
    assert model.capabilities == {
        Capability.CHAT,
        Capability.LIKELIHOOD,
        Capability.LABELS,
        Capability.ATTENTION,
    }
    assert await model.likelihoods([("a", "b c"), ("aa", "b")]) == [[-1.0, -1.0], [-2.0]]
    assert await model.likelihood("a", "b") == [-1.0]
    assert await model.labels(ASK, ["yes"], forced="[") == LabelOdds({"yes": 1.0}, 0.5, ("[",))
    assert await model.attention("text", [(0, 3)]) == [3]


async def test_without_them_it_refuses() -> None:
    model = ScriptedModel()
    assert model.capabilities == {Capability.CHAT}
    with pytest.raises(MissingCapability):
        await model.likelihood("a", "b")
    with pytest.raises(MissingCapability):
        await model.labels(ASK, ["yes"])
    with pytest.raises(MissingCapability):
        await model.attention("a", [])


async def test_its_counts_agree() -> None:
    model = ScriptedModel()
    text = "Four words are here."
    assert await model.count_tokens(text) == len(await model.token_spans(text)) == 5
    assert await model.count_prompt([Message("system", text), Message("user", text)]) == 2 * (5 + 4)
