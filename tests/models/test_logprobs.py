"""Likelihoods and whole labels from a server: exact where it gives them, else said to be absent."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from colligate.errors import (
    ContextTooSmall,
    MalformedOutput,
    MissingCapability,
    RateLimited,
    RequestRefused,
)
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


@pytest.mark.parametrize("form", ["prompt_logprobs", "echo"])
@pytest.mark.parametrize("bos", [None, 1])
async def test_likelihood(openai_server, model, form, bos):
    openai_server.likelihood = form
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


async def test_many_pairs_in_order(openai_server, policy):
    openai_server.tokenizer, openai_server.likelihood = "vllm", "prompt_logprobs"
    model = OpenAIChat("m", openai_server.url, policy=replace(policy, in_flight=3))
    pairs = [(f"Document {number} is here.", CONTINUATION) for number in range(12)]
    pairs.append((PREFIX, ""))
    alone = [await likelihood(model, *pair) for pair in pairs]
    openai_server.hold()
    together = asyncio.create_task(model.likelihoods(pairs))
    assert await asyncio.to_thread(openai_server.until, lambda: openai_server.in_flight == 3)
    openai_server.release()
    assert await together == alone
    assert alone[-1] == []
    assert openai_server.in_flight_most == 3
    assert await model.likelihoods([]) == []
    await model.aclose()


async def test_a_shared_text_is_tokenised_once(openai_server, model):
    await likelihood(model, "a", "b")
    before = len(asked(openai_server, "/tokenize"))
    await model.likelihoods([(f"Document {number}.", CONTINUATION) for number in range(5)])
    assert len(asked(openai_server, "/tokenize")) - before == 6


async def test_control_tokens_in_a_text_are_letters(openai_server, model):
    await likelihood(model, "See <|end|> and <b>this</b> [link] [1].", CONTINUATION)
    sent = asked(openai_server)[-1]["prompt"]
    assert sent[: -len(openai_server.ids(CONTINUATION))] == openai_server.ids(
        "See \u2039|end|> and <b>this</b> [link] [1]."
    )


async def test_text_that_no_encoding_has(openai_server, model):
    scores = await likelihood(model, "caf\udce9", "half \ud83d")
    assert scores == await likelihood(model, "caf\ufffd", "half \ufffd")


async def test_a_prompt_too_long_is_not_sent(openai_server, model):
    openai_server.window = 12  # as /tokenize tells
    assert len(await likelihood(model, "word", " word" * 10)) == 10
    sent = len(asked(openai_server))
    with pytest.raises(ContextTooSmall, match="12 tokens and the window 12"):
        await likelihood(model, "word", " word" * 11)
    assert len(asked(openai_server)) == sent


async def test_a_prompt_too_long_for_a_window_nobody_told(openai_server, model):
    await likelihood(model, "a", "b")
    openai_server.too_long("vllm", path="/completions")
    with pytest.raises(ContextTooSmall):
        await likelihood(model, PREFIX, CONTINUATION)


@pytest.mark.parametrize("tokenizer", [None, "vllm", "llama-server"])
@pytest.mark.parametrize("form", [None, "echo"])
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


TAMPERED: dict[str, Callable[[list[Any]], list[Any]]] = {
    "short": lambda entries: entries[:-2],
    "long": lambda entries: [*entries, *entries[-2:]],
    "shifted": lambda entries: entries[1:] + entries[-1:],
    "empty": lambda entries: [],
    "other tokens": lambda entries: [None, *({"9": {"logprob": -1.0}} for _ in entries[1:])],
    "not a number": lambda entries: [None, *(math.nan for _ in entries[1:])],
    "minus infinity": lambda entries: [None, *(-math.inf for _ in entries[1:])],
    "positive": lambda entries: [None, *(0.5 for _ in entries[1:])],
    "text": lambda entries: [None, *("-1" for _ in entries[1:])],
    "null": lambda entries: [None for _ in entries],
}


@pytest.mark.parametrize("form", ["prompt_logprobs", "echo"])
@pytest.mark.parametrize("fault", TAMPERED)
async def test_what_does_not_cover_the_prompt_is_no_capability(openai_server, model, form, fault):
    openai_server.likelihood, openai_server.tamper = form, TAMPERED[fault]
    with pytest.raises(MissingCapability, match="likelihoods"):
        await likelihood(model, PREFIX, CONTINUATION)
    assert Capability.LIKELIHOOD not in await model.probe()


@pytest.mark.parametrize("form", ["prompt_logprobs", "echo"])
@pytest.mark.parametrize("fault", TAMPERED)
async def test_later_nonsense_is_never_a_number(openai_server, model, form, fault):
    openai_server.likelihood = form
    honest = await likelihood(model, PREFIX, CONTINUATION)
    sent = len(asked(openai_server))
    openai_server.tamper = TAMPERED[fault]
    with pytest.raises(MalformedOutput):
        await likelihood(model, PREFIX, CONTINUATION)
    assert len(asked(openai_server)) - sent == 3
    openai_server.tamper = list
    assert await likelihood(model, PREFIX, CONTINUATION) == honest


async def test_a_server_that_adds_a_token_of_its_own(openai_server, model):
    ids = len(openai_server.ids("ab"))
    reply = {
        "choices": [{"logprobs": {"token_logprobs": [None, *[-1.0] * (ids + 1)]}}],
        "usage": {"prompt_tokens": ids + 2},
    }
    openai_server.likelihood = "echo"
    await likelihood(model, "a", "b")
    openai_server.garble(json.dumps(reply).encode(), 3, path="/completions")
    with pytest.raises(MalformedOutput, match="of a prompt of 2 tokens"):
        await likelihood(model, "a", "b")


async def test_a_passing_failure_is_no_answer(openai_server, model):
    openai_server.fail(429, times=3, path="/tokenize")
    with pytest.raises(RateLimited):
        await likelihood(model, PREFIX, CONTINUATION)
    assert await likelihood(model, PREFIX, CONTINUATION)


async def test_calls_at_once_try_the_server_once(openai_server, model):
    await asyncio.gather(*(likelihood(model, "a", "b") for _ in range(6)))
    samples = [sent for sent in asked(openai_server) if len(sent["prompt"]) > 2]
    assert len(samples) == 1


async def test_one_failure_ends_the_others(openai_server, model):
    await likelihood(model, "a", "b")
    openai_server.fail(400, "no", path="/completions")
    openai_server.stall(times=9, path="/completions")
    async with asyncio.timeout(10):
        with pytest.raises(RequestRefused):
            await model.likelihoods([(f"Document {number}", "x") for number in range(10)])


async def test_probe_finds_likelihood_and_the_window(openai_server, model):
    openai_server.window = 4096
    assert Capability.LIKELIHOOD in await model.probe()
    assert model.context_tokens == 4096


async def test_openai_is_not_asked(monkeypatch):
    model = OpenAIChat("gpt-x", api_key="k")
    with pytest.raises(MissingCapability, match="OpenAI's models"):
        await likelihood(model, "a", "b")


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


async def test_labels_of_one_token_take_one_call(openai_server, model):
    openai_server.logprobs = {"Yes": 0.6, "No": 0.2}
    for _ in range(2):
        found = await model.labels(ASK, ["Yes", "No"])
        assert found.odds == pytest.approx({"Yes": 0.75, "No": 0.25})
    assert len(asked(openai_server, "/chat/completions")) == 2
    assert len(asked(openai_server)) == 1  # the first look whether there are likelihoods


async def test_without_a_chat_template_the_first_token_counts(openai_server, model):
    openai_server.tokenizer, openai_server.logprobs = "llama-server", {"Yes": 0.6, "No": 0.2}
    found = await model.labels(ASK, ["Yes, it does", "No"])
    assert found.odds == pytest.approx({"Yes, it does": 0.75, "No": 0.25})
    with pytest.raises(MissingCapability, match="apart"):
        await model.labels(ASK, LABELS)
