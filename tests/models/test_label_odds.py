"""Odds of labels from the likeliest first tokens that a server returns."""

import json

import pytest

from colligate.errors import MalformedOutput, MissingCapability
from colligate.models import Capability
from colligate.models.label_odds import odds_from_first_token
from support.models import HELLO


@pytest.mark.parametrize(
    ("alternatives", "labels", "odds", "mass", "bounded"),
    [
        (
            {"Yes": 0.6, " yes": 0.1, "No": 0.2, "The": 0.05},
            ["yes", "no"],
            {"yes": 7 / 9, "no": 2 / 9},
            0.9,
            (),
        ),
        (  # 0.06 is left over for two labels; each could also be at most 0.04
            {"A": 0.7, "B": 0.2, "Z": 0.04},
            ["A", "B", "C", "D"],
            {"A": 70 / 96, "B": 20 / 96, "C": 3 / 96, "D": 3 / 96},
            0.96,
            ("C", "D"),
        ),
        (  # a longer word is not the label
            {"None": 0.5, "No,": 0.1, "Yes": 0.3, "Y": 0.1},
            ["Yes", "No"],
            {"Yes": 0.8, "No": 0.2},
            0.5,
            (),
        ),
        # "10" is a token, so "1" does not begin it.
        ({"1": 0.6, "10": 0.2}, ["1", "10"], {"1": 0.75, "10": 0.25}, 0.8, ()),
        (  # "Yes" could be either, but decides nothing
            {"Yes": 0.001, "No": 0.9},
            ["Yes, fully", "Yes, in part", "No"],
            {"Yes, fully": 0.0005 / 0.901, "Yes, in part": 0.0005 / 0.901, "No": 0.9 / 0.901},
            0.901,
            (),
        ),
    ],
)
def test_odds_of_first_tokens(alternatives, labels, odds, mass, bounded):
    found = odds_from_first_token(list(alternatives.items()), labels, "m")
    assert found.odds == pytest.approx(odds)
    assert found.mass == pytest.approx(mass)
    assert found.bounded == bounded


@pytest.mark.parametrize(
    ("alternatives", "labels", "error", "said"),
    [
        (
            {"Yes": 0.6, "No": 0.3},
            ["Yes, fully", "Yes, in part", "No"],
            MissingCapability,
            "Yes, fully, Yes, in part apart",
        ),
        ({"1": 0.6}, ["1", "10"], MissingCapability, "begin differently"),  # "10" may be two tokens
        ({"Well": 1.0}, ["yes", "no"], MalformedOutput, "none is among"),
    ],
)
def test_first_tokens_that_decide_nothing(alternatives, labels, error, said):
    with pytest.raises(error, match=said):
        odds_from_first_token(list(alternatives.items()), labels, "m")


async def test_odds_that_a_server_leaves_out_once_are_asked_for_again(openai_server, model):
    openai_server.logprobs = {"Yes": 0.6, "No": 0.2}
    await model.labels(HELLO, ["yes", "no"])
    asked = len(openai_server.requests)
    openai_server.garble(json.dumps({"choices": [{"message": {"content": "Yes"}}]}).encode())
    found = await model.labels(HELLO, ["yes", "no"])
    assert found.odds == pytest.approx({"yes": 0.75, "no": 0.25})
    assert len(openai_server.requests) == asked + 2


@pytest.mark.parametrize("labels", [[], ["yes", ""], ["yes", "no", "yes"]])
async def test_wrong_labels(openai_server, model, labels):
    with pytest.raises(ValueError, match="labels"):
        await model.labels(HELLO, labels)
    assert openai_server.requests == []


async def test_the_first_token_alone_has_no_odds_after_a_beginning(openai_server, model):
    openai_server.logprobs = {"yes": 0.6, "no": 0.2}
    with pytest.raises(MissingCapability, match="after a beginning"):
        await model.labels(HELLO, ["yes", "no"], forced="The answer is")


@pytest.mark.parametrize("refused", [set(), {"logprobs"}, {"top_logprobs"}])
async def test_no_label_odds(openai_server, model, refused):
    openai_server.refused = refused
    with pytest.raises(MissingCapability, match="top_logprobs"):
        await model.labels(HELLO, ["yes", "no"])
    assert Capability.LABELS not in model.capabilities
