"""Likelihoods and whole labels from a server: exact where it gives them, else said to be absent."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from colligate.errors import ContextTooSmall, MalformedOutput, MissingCapability
from colligate.models import Capability, LikelihoodModel, Message
from colligate.models.openai import OpenAIChat
from support.models import likelihood

PREFIX, CONTINUATION = "Otters live in rivers.", " They eat fish."
ASK = [Message("user", "Does the passage help?")]


@pytest.fixture
def model(openai_server: Any, model: OpenAIChat) -> OpenAIChat:
    openai_server.tokenizer, openai_server.likelihood = "vllm", "prompt_logprobs"
    return model


def expected(server: Any, before: list[int], after: list[int]) -> list[float]:
    """What the server would say of `after`."""
    whole = before + after
    return [server.logprob(whole[:at], whole[at]) for at in range(len(before), len(whole))]


def asked(server: Any, path: str = "/completions") -> list[dict[str, Any]]:
    return [sent for sent in server.requests if sent["path"] == path]


@pytest.mark.parametrize("bos", [None, 1])
async def test_likelihood(openai_server, model, bos):
    openai_server.bos = bos
    assert isinstance(model, LikelihoodModel)
    assert Capability.LIKELIHOOD not in model.capabilities
    scores = await likelihood(model, PREFIX, CONTINUATION)
    begin = [] if bos is None else [bos]
    before, after = begin + openai_server.ids(PREFIX), openai_server.ids(CONTINUATION)
    assert scores == pytest.approx(expected(openai_server, before, after))
    assert asked(openai_server)[-1]["prompt"] == before + after
    assert Capability.LIKELIHOOD in model.capabilities


async def test_the_boundary_is_where_the_texts_meet(openai_server, model):
    joined = openai_server.ids("rivers")
    scores = await likelihood(model, "riv", "ers")
    assert len(joined) == 2
    apart = openai_server.ids("riv"), openai_server.ids("ers")
    assert apart[0] + apart[1] != joined
    assert scores == pytest.approx(expected(openai_server, *apart))


@pytest.mark.parametrize("bos", [None, 1])
async def test_an_empty_prefix_is_the_beginning_of_a_text(openai_server, model, bos):
    openai_server.bos = bos
    scores = await likelihood(model, "", CONTINUATION)
    before = openai_server.ids("\n") if bos is None else [bos]
    assert scores == pytest.approx(expected(openai_server, before, openai_server.ids(CONTINUATION)))
    assert await likelihood(model, "", "") == []


async def test_control_tokens_in_a_text_are_letters(openai_server, model):
    await likelihood(model, "See <|end|> and <b>this</b> [link] [1].", CONTINUATION)
    sent = asked(openai_server)[-1]["prompt"]
    assert sent[: -len(openai_server.ids(CONTINUATION))] == openai_server.ids(
        "See \u2039|end|> and <b>this</b> [link] [1]."
    )


async def test_a_prompt_too_long_is_not_sent(openai_server, model):
    openai_server.window = 12  # as /tokenize tells
    assert len(await likelihood(model, "word", " word" * 10)) == 10
    sent = len(asked(openai_server))
    with pytest.raises(ContextTooSmall, match="12 tokens and the window 12"):
        await likelihood(model, "word", " word" * 11)
    assert len(asked(openai_server)) == sent


@pytest.mark.parametrize("tokenizer", [None, "vllm", "llama-server"])
@pytest.mark.parametrize("form", [None, "prompt_logprobs"])
async def test_absent_is_asked_for_once(openai_server, model, tokenizer, form):
    openai_server.tokenizer, openai_server.likelihood = tokenizer, form
    if tokenizer and form:
        openai_server.tamper = lambda entries: entries[-1:]  # of the written token alone
    for _ in range(2):
        with pytest.raises(MissingCapability, match=r"gives no likelihoods: .*; use a") as no:
            await likelihood(model, PREFIX, CONTINUATION)
        assert "\n" not in str(no.value)
    asked_once = len(openai_server.requests)
    with pytest.raises(MissingCapability):
        await model.likelihoods([(PREFIX, CONTINUATION)])
    assert len(openai_server.requests) == asked_once <= 6
    assert Capability.LIKELIHOOD not in model.capabilities


def say(entries: list[Any], logprob: Any) -> list[Any]:
    """The same tokens, each with this log-probability."""
    return [None, *({token: {"logprob": logprob} for token in each} for each in entries[1:])]


TAMPERED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "short": lambda entries: entries[:-2],
    "long": lambda entries: [*entries, *entries[-2:]],
    "shifted": lambda entries: entries[1:] + entries[-1:],
    "empty": lambda entries: [],
    "other tokens": lambda entries: [None, *({"9": {"logprob": -1.0}} for _ in entries[1:])],
    "not a number": lambda entries: say(entries, math.nan),
    "minus infinity": lambda entries: say(entries, -math.inf),
    "positive": lambda entries: say(entries, 0.5),
    "text": lambda entries: say(entries, "-1"),
    "null": lambda entries: [None for _ in entries],
}


@pytest.mark.parametrize("fault", TAMPERED)
async def test_later_nonsense_is_never_a_number(openai_server, model, fault):
    honest = await likelihood(model, PREFIX, CONTINUATION)
    sent = len(asked(openai_server))
    openai_server.tamper = TAMPERED[fault]
    with pytest.raises(MalformedOutput):
        await likelihood(model, PREFIX, CONTINUATION)
    assert len(asked(openai_server)) - sent == 3
    openai_server.tamper = list
    assert await likelihood(model, PREFIX, CONTINUATION) == honest


LABELS = ["Yes, it does", "Yes, in part", "No"]


@pytest.mark.parametrize("forced", ["", "I would say:"])
async def test_labels_of_several_tokens_are_scored_whole(openai_server, model, forced):
    openai_server.logprobs = {"Yes": 0.9, "No": 0.1}
    found = await model.labels(ASK, LABELS, forced=forced)
    scores = {}
    for label in LABELS:
        ids = openai_server.ids(label)
        [before] = [
            sent["prompt"][: -len(ids)]
            for sent in asked(openai_server)[-3:]
            if sent["prompt"][-len(ids) :] == ids
        ]
        question, begun = openai_server.ids(ASK[0].content), openai_server.ids(forced)
        assert before[1 : len(question) + 1] == question  # after the mark of the user's turn
        assert len(before) == 1 + len(question) + 2 + len(begun)
        assert before[len(before) - len(begun) :] == begun
        scores[label] = math.exp(sum(expected(openai_server, before, ids)))
    total = sum(scores.values())
    assert found.mass == pytest.approx(total)
    assert found.odds == pytest.approx({label: one / total for label, one in scores.items()})
    assert (list(found.odds), found.bounded) == (LABELS, ())
    assert asked(openai_server, "/chat/completions") == []
    assert Capability.LABELS in model.capabilities


async def test_without_a_chat_template_the_first_token_counts(openai_server, model):
    openai_server.tokenizer, openai_server.logprobs = "llama-server", {"Yes": 0.6, "No": 0.2}
    found = await model.labels(ASK, ["Yes, it does", "No"])
    assert found.odds == pytest.approx({"Yes, it does": 0.75, "No": 0.25})
    with pytest.raises(MissingCapability, match="apart"):
        await model.labels(ASK, LABELS)
