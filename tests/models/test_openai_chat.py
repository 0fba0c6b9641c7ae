"""Chat with servers as they are: each refuses something else, and any of them may break."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel, Field

from colligate.errors import (
    MalformedOutput,
    MissingCapability,
    RequestRefused,
    ServerFailed,
    WeightsUnavailable,
)
from colligate.models import Capability, ChatModel, LabelModel, Message, Usage
from colligate.models.openai import OpenAIChat
from colligate.models.openai_http import Dialect, Policy

HELLO = [Message("system", "Be brief."), Message("user", "Hello?")]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string"}, "note": {"type": "string", "default": ""}},
    "required": ["answer"],
}


@pytest.fixture
async def model(openai_server: Any, policy: Policy) -> Any:
    model = OpenAIChat("m", openai_server.url, policy=policy)
    yield model
    await model.aclose()
    await model.aclose()


async def test_one_call(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.say("Hi.", usage={"prompt_tokens": 7, "completion_tokens": 2})
    completion = await model.chat(HELLO, max_tokens=9, stop=["\n\n"], seed=3)
    assert completion.text == "Hi."
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (7, 2)
    assert not completion.usage.estimated
    assert completion.model == model.name == f"openai:m@{openai_server.url}"
    assert completion.warnings == ()
    sent = openai_server.requests[0]
    assert sent["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello?"},
    ]
    expected = {"model": "m", "max_tokens": 9, "temperature": 0.0, "stop": ["\n\n"], "seed": 3}
    assert expected.items() <= sent.items()
    assert isinstance(model, ChatModel)
    assert isinstance(model, LabelModel)


async def test_streaming_gives_the_same(openai_server: Any, model: OpenAIChat) -> None:
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 5},
    }
    openai_server.say("A somewhat longer answer.", finish_reason="length", usage=usage)
    pieces: list[str] = []
    completion = await model.chat(HELLO, max_tokens=9, on_token=pieces.append)
    assert len(pieces) > 3
    assert "".join(pieces) == completion.text == "A somewhat longer answer."
    assert completion.finish_reason == "length"
    assert (completion.usage.output_tokens, completion.usage.cached_tokens) == (3, 5)


@pytest.mark.parametrize("stream", [False, True])
async def test_thinking_is_kept_apart(openai_server: Any, model: OpenAIChat, stream: bool) -> None:
    openai_server.say("<think>hidden</think>\nShown.", reasoning="said apart")
    pieces: list[str] = []
    completion = await model.chat(HELLO, max_tokens=9, on_token=pieces.append if stream else None)
    assert completion.text == "Shown."
    assert completion.thinking == "said apart\n\nhidden"
    assert "".join(pieces) == ("Shown." if stream else "")


async def test_a_model_that_only_thought_gets_room(openai_server: Any, model: OpenAIChat) -> None:
    usage = {"prompt_tokens": 7, "completion_tokens": 10}
    openai_server.say(None, reasoning="hm, well", finish_reason="length", usage=usage)
    openai_server.say("Four.", reasoning="two and two", usage=usage, times=2)
    completion = await model.chat(HELLO, max_tokens=10)
    assert completion.text == "Four."
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (14, 20)
    assert "thinking" in completion.warnings[0]
    again = await model.chat(HELLO, max_tokens=10)
    assert again.warnings == ()
    assert [sent["max_tokens"] for sent in openai_server.requests] == [10, 4106, 4106]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>Welcome</html>",
        b"[]",
        b'"text"',
        b'{"choices": "x"}',
        b"\xff\xfe",
        b"[" * 200_000,
        b'{"choices": [{"message": {"content": ["a"]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"message": {"content": "a"}, "finish_reason": 7}]}',
    ],
)
async def test_nonsense_bodies(openai_server: Any, model: OpenAIChat, body: bytes) -> None:
    openai_server.garble(body, times=3)
    with pytest.raises(MalformedOutput, match="OpenAI-compatible"):
        await model.chat(HELLO, max_tokens=9)


@pytest.mark.parametrize(
    "event",
    [
        b"[",
        b'"text"',
        b'{"choices": {"a": 1}}',
        b'{"choices": [{"delta": {"content": ["a"]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"delta": {"content": "a"}, "finish_reason": 7}]}',
    ],
)
async def test_nonsense_events(openai_server: Any, model: OpenAIChat, event: bytes) -> None:
    openai_server.garble(b"data: " + event + b"\n\n", times=3)
    with pytest.raises(MalformedOutput, match="OpenAI-compatible"):
        await model.chat(HELLO, max_tokens=9, on_token=lambda piece: None)


async def test_usage_without_sense_is_an_estimate_or_nothing(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.say("x", usage={"prompt_tokens": "many", "completion_tokens": -4})
    assert (await model.chat(HELLO, max_tokens=9)).usage.estimated
    openai_server.say("x", usage={"prompt_tokens": 5, "completion_tokens": "4"})
    assert (await model.chat(HELLO, max_tokens=9)).usage == Usage(5, 0)


async def test_everything_refused_ends(openai_server: Any, model: OpenAIChat) -> None:
    said = "temperature, seed, stop, max_tokens, max_completion_tokens, schema: not supported"
    openai_server.fail(400, said, times=100)
    with pytest.raises(RequestRefused, match="not supported"):
        await model.chat(HELLO, max_tokens=9, seed=1, stop=["#"], schema=SCHEMA)
    assert len(openai_server.requests) < 10


async def test_a_stream_cut_and_asked_again_shows_nothing_twice(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.cut("The answer is forty-two.")
    openai_server.say("The answer is forty-two.")
    pieces: list[str] = []
    completion = await model.chat(HELLO, max_tokens=9, on_token=pieces.append)
    assert "".join(pieces) == completion.text == "The answer is forty-two."
    assert completion.warnings == ()


async def test_a_stream_that_comes_back_different_says_so(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.cut("The answer is forty-two.")
    openai_server.say("It is forty-three.")
    completion = await model.chat(HELLO, max_tokens=9, on_token=lambda piece: None)
    assert completion.text == "It is forty-three."
    assert "differs" in completion.warnings[0]


@pytest.mark.parametrize("parameter", ["temperature", "seed", "stop"])
async def test_a_refused_parameter_is_left_out_and_said_once(
    openai_server: Any, model: OpenAIChat, parameter: str
) -> None:
    openai_server.refused = {parameter}
    options: Mapping[str, Any] = {"max_tokens": 9, "seed": 1, "stop": ["#"]}
    first = await model.chat(HELLO, **options)
    assert first.text == "Hello."
    assert first.warnings == (f"m does not take {parameter}; it was left out",)
    second = await model.chat(HELLO, **options)
    assert second.warnings == ()
    assert [parameter in sent for sent in openai_server.requests] == [True, False, False]


async def test_several_refusals_in_one_call(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.refused = {"temperature", "seed", "stop", "max_tokens", "stream_options"}
    completion = await model.chat(
        HELLO, max_tokens=9, seed=1, stop=["#"], on_token=lambda piece: None
    )
    assert completion.text == "Hello."
    assert completion.usage.estimated
    assert openai_server.requests[-1]["max_completion_tokens"] == 9
    assert len(completion.warnings) == 3


async def test_max_tokens_is_renamed_quietly(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.refused = {"max_tokens"}
    assert (await model.chat(HELLO, max_tokens=9)).warnings == ()
    await model.chat(HELLO, max_tokens=9)
    assert ["max_tokens" in sent for sent in openai_server.requests] == [True, False, False]


async def test_calls_at_once_learn_the_same_thing(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.refused = {"max_tokens", "temperature"}
    openai_server.refused_forms = {"json_schema"}
    calls = (model.chat(HELLO, max_tokens=9, schema=SCHEMA) for _ in range(6))
    completions = await asyncio.gather(*calls)
    assert len([warning for each in completions for warning in each.warnings]) == 2


async def test_both_limits_refused_is_an_error(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.refused = {"max_tokens", "max_completion_tokens"}
    with pytest.raises(RequestRefused):
        await model.chat(HELLO, max_tokens=9)


async def test_too_large_a_limit_is_not_renamed(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.fail(400, "max_tokens is too large: 99999", param="max_tokens")
    with pytest.raises(RequestRefused, match="too large"):
        await model.chat(HELLO, max_tokens=99999)
    assert len(openai_server.requests) == 1


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ("We had to stop here: the request is against our policy", None),
        ("temperature must be between 0 and 2", "temperature"),
        ("the seed of all evil", None),
    ],
)
async def test_a_refusal_of_something_else_teaches_nothing(
    openai_server: Any, model: OpenAIChat, message: str, param: str | None
) -> None:
    options: Mapping[str, Any] = {"max_tokens": 9, "seed": 1, "stop": ["#"]}
    openai_server.fail(400, message, param=param)
    with pytest.raises(RequestRefused, match=message):
        await model.chat(HELLO, **options)
    assert (await model.chat(HELLO, **options)).warnings == ()
    assert {"temperature", "seed", "stop"} <= set(openai_server.requests[-1])


@pytest.mark.parametrize(
    "message",
    [
        "Unrecognized request argument supplied: seed",
        "property 'seed' is unsupported",
        "this model does not support seed",
        "[{'type': 'extra_forbidden', 'loc': ('body', 'seed'), 'msg': 'Extra inputs are ...'}]",
    ],
)
async def test_refusals_as_servers_word_them(
    openai_server: Any, model: OpenAIChat, message: str
) -> None:
    openai_server.fail(400, message)
    completion = await model.chat(HELLO, max_tokens=9, seed=1)
    assert completion.warnings == ("m does not take seed; it was left out",)


async def test_what_on_token_raises_is_not_the_servers_fault(
    openai_server: Any, model: OpenAIChat
) -> None:
    def show(piece: str) -> None:
        "…".encode("ascii")  # as printing does in a terminal that knows no more

    with pytest.raises(UnicodeEncodeError):
        await model.chat(HELLO, max_tokens=9, on_token=show)
    assert len(openai_server.requests) == 1


async def test_stop_is_kept_where_the_server_does_not(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.refused = {"stop"}
    openai_server.answer = "One.\n\nTwo."
    pieces: list[str] = []
    completion = await model.chat(HELLO, max_tokens=9, stop=["\n\n"], on_token=pieces.append)
    assert completion.text == "".join(pieces) == "One."


async def test_schema_is_sent_strict(openai_server: Any, model: OpenAIChat) -> None:
    await model.chat(HELLO, max_tokens=9, schema=SCHEMA)
    form = openai_server.requests[0]["response_format"]
    assert form["type"] == "json_schema"
    schema = form["json_schema"]["schema"]
    assert schema["required"] == ["answer", "note"]
    assert schema["additionalProperties"] is False
    assert "default" not in schema["properties"]["note"]
    assert Capability.STRUCTURED in model.capabilities


class Claim(BaseModel):
    text: str
    default: int = 0  # a name that is also a keyword of JSON schema


class Claims(BaseModel):
    claims: list[Claim] = Field(description="all of them")
    best: Claim | None = Field(default=None, description="the best")


async def test_strict_schema_reaches_nested_models(openai_server: Any, model: OpenAIChat) -> None:
    await model.chat(HELLO, max_tokens=9, schema=Claims.model_json_schema())
    schema = openai_server.requests[0]["response_format"]["json_schema"]["schema"]
    assert schema["required"] == ["claims", "best"]
    nested = schema["$defs"]["Claim"]
    assert nested["required"] == ["text", "default"]
    assert nested["additionalProperties"] is False
    assert nested["properties"]["default"]["type"] == "integer"
    assert schema["properties"]["claims"]["items"] == {"$ref": "#/$defs/Claim"}


@pytest.mark.parametrize(
    ("refused", "form"),
    [({"json_schema"}, "json_object"), ({"json_schema", "json_object"}, None)],
)
async def test_schema_falls_back(
    openai_server: Any, model: OpenAIChat, refused: set[str], form: str | None
) -> None:
    openai_server.refused_forms = refused
    first = await model.chat(HELLO, max_tokens=9, schema=SCHEMA)
    assert len(first.warnings) == len(refused)
    second = await model.chat(HELLO, max_tokens=9, schema=SCHEMA)
    assert second.warnings == ()
    assert len(openai_server.requests) == len(refused) + 2
    sent = openai_server.requests[-1]
    assert sent.get("response_format", {}).get("type") == form
    assert '"answer"' in sent["messages"][-1]["content"]
    assert [turn["role"] for turn in sent["messages"]] == ["system", "user"]
    assert Capability.STRUCTURED not in model.capabilities


async def test_labels(openai_server: Any, model: OpenAIChat) -> None:
    assert Capability.LABELS not in model.capabilities
    openai_server.logprobs = {"Yes": 0.6, " yes": 0.1, "No": 0.2, "The": 0.05}
    found = await model.labels(HELLO, ["yes", "no"])
    assert found.odds == pytest.approx({"yes": 7 / 9, "no": 2 / 9})
    assert found.mass == pytest.approx(0.9)
    assert found.bounded == ()
    assert Capability.LABELS in model.capabilities
    assert openai_server.requests[-1]["temperature"] == 1.0


async def test_a_label_not_returned_gets_no_more_than_it_can_have(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.logprobs = {"A": 0.7, "B": 0.2, "Z": 0.04}
    found = await model.labels(HELLO, ["A", "B", "C", "D"])
    # 0.06 is left over for two labels; each could also be at most 0.04.
    assert found.odds["C"] == found.odds["D"] == pytest.approx(0.03 / 0.96)
    assert sum(found.odds.values()) == pytest.approx(1)
    assert found.mass == pytest.approx(0.96)
    assert found.bounded == ("C", "D")


async def test_a_longer_word_is_no_label(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.logprobs = {"None": 0.5, "No,": 0.1, "Yes": 0.3, "Y": 0.1}
    found = await model.labels(HELLO, ["Yes", "No"])
    assert found.odds == pytest.approx({"Yes": 0.8, "No": 0.2})
    assert found.mass == pytest.approx(0.5)


async def test_labels_that_begin_alike_are_not_told_apart(
    openai_server: Any, model: OpenAIChat
) -> None:
    labels = ["Yes, fully", "Yes, in part", "No"]
    openai_server.logprobs = {"Yes": 0.6, "No": 0.3}
    with pytest.raises(MissingCapability, match="Yes, fully, Yes, in part apart"):
        await model.labels(HELLO, labels)
    openai_server.logprobs = {"Yes": 0.001, "No": 0.9}  # decides nothing
    found = await model.labels(HELLO, labels)
    assert found.odds["No"] > 0.99


@pytest.mark.parametrize(
    ("odds", "expected"), [({"1": 0.6, "10": 0.2}, {"1": 0.75, "10": 0.25}), ({"1": 0.6}, None)]
)
async def test_a_number_that_begins_another(
    openai_server: Any, model: OpenAIChat, odds: dict[str, float], expected: Any
) -> None:
    openai_server.logprobs = odds
    if expected is None:  # "10" may be written as "1" and "0"
        with pytest.raises(MissingCapability, match="begin differently"):
            await model.labels(HELLO, ["1", "10"])
    else:
        assert (await model.labels(HELLO, ["1", "10"])).odds == pytest.approx(expected)


@pytest.mark.parametrize("labels", [[], ["yes", ""], ["yes", "no", "yes"]])
async def test_labels_that_are_none(
    openai_server: Any, model: OpenAIChat, labels: list[str]
) -> None:
    with pytest.raises(ValueError, match="labels"):
        await model.labels(HELLO, labels)
    assert openai_server.requests == []


async def test_none_of_the_labels(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.logprobs = {"Well": 1.0}
    with pytest.raises(MalformedOutput, match="none is among"):
        await model.labels(HELLO, ["yes", "no"])


async def test_labels_after_a_forced_beginning(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.continues, openai_server.logprobs = True, {"yes": 0.6, "no": 0.2}
    for _ in range(2):
        found = await model.labels(HELLO, ["yes", "no"], forced="The answer is")
        assert found.odds == pytest.approx({"yes": 0.75, "no": 0.25})
    asked = [sent for sent in openai_server.requests if sent["path"] == "/chat/completions"]
    assert len(asked) == 3  # the server was tried once
    sent = asked[-1]
    assert sent["messages"][-1] == {"role": "assistant", "content": "The answer is"}
    assert (sent["continue_final_message"], sent["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize(("continues", "why"), [(False, "goes on with 'yes'"), (None, "Unrecog")])
async def test_a_server_that_does_not_continue(
    openai_server: Any, model: OpenAIChat, continues: bool | None, why: str
) -> None:
    openai_server.continues, openai_server.logprobs = continues, {"yes": 0.6, "no": 0.2}
    for _ in range(2):
        with pytest.raises(MissingCapability, match=f"does not continue.*{why}.*use a"):
            await model.labels(HELLO, ["yes", "no"], forced="The answer is")
    asked = [sent for sent in openai_server.requests if sent["path"] == "/chat/completions"]
    assert len(asked) == 1
    assert (await model.labels(HELLO, ["yes", "no"])).odds["yes"] == pytest.approx(0.75)


@pytest.mark.parametrize("logprob", [1e9, float("nan"), float("inf"), "high", None])
async def test_log_probabilities_without_sense_are_none(
    openai_server: Any, model: OpenAIChat, logprob: object
) -> None:
    first = {"top_logprobs": [{"token": "yes", "logprob": logprob}]}
    reply = {"choices": [{"logprobs": {"content": [first]}}]}
    openai_server.garble(json.dumps(reply).encode())
    with pytest.raises(MissingCapability):
        await model.labels(HELLO, ["yes", "no"])


@pytest.mark.parametrize("refused", [set(), {"logprobs"}, {"top_logprobs"}])
async def test_no_label_odds(openai_server: Any, model: OpenAIChat, refused: set[str]) -> None:
    openai_server.refused = refused
    with pytest.raises(MissingCapability, match="top_logprobs"):
        await model.labels(HELLO, ["yes", "no"])
    assert Capability.LABELS not in model.capabilities


async def test_probe_finds_what_there_is(openai_server: Any, model: OpenAIChat) -> None:
    assert Capability.LABELS not in await model.probe()
    openai_server.logprobs = {"Well": 1.0}
    openai_server.models = ["m"]
    openai_server.window = 4096
    assert model.context_tokens is None
    assert Capability.LABELS in await model.probe()
    assert model.context_tokens == 4096


async def test_cancelling_a_stream_closes_it(openai_server: Any, model: OpenAIChat) -> None:
    openai_server.stall()
    task = asyncio.create_task(model.chat(HELLO, max_tokens=9, on_token=lambda piece: None))
    await asyncio.to_thread(openai_server.arrived.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_in_the_stream_is_typed(openai_server: Any, model: OpenAIChat) -> None:
    event = b'data: {"error": {"message": "out of memory", "code": 500}}\n\n'
    openai_server.garble(event, times=3)
    with pytest.raises(ServerFailed, match="out of memory"):
        await model.chat(HELLO, max_tokens=9, on_token=lambda piece: None)


async def test_token_counts_are_about_right(model: OpenAIChat) -> None:
    english = "The quick brown fox jumps over the lazy dog near the river bank. " * 10
    assert 130 <= await model.count_tokens(english) <= 175  # 140 with GPT-2's tokenizer
    assert await model.count_tokens("") == 0
    assert await model.count_tokens("我们都是好朋友") == 7


async def test_base_url_from_the_environment(
    openai_server: Any, policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", openai_server.url)
    model = OpenAIChat("m", policy=policy)
    assert (await model.chat(HELLO, max_tokens=9)).text == "Hello."
    await model.aclose()


def test_openai_gets_the_new_name_of_the_limit() -> None:
    assert OpenAIChat("gpt-x", api_key="k").name == "openai:gpt-x"
    assert "max_completion_tokens" in Dialect("gpt-x", is_openai=True).request(HELLO, max_tokens=1)


async def test_an_adapter_is_another_model_of_the_same_server(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.models = ["m", "router", "scope"]
    openai_server.answer = lambda body: f"as {body['model']}"
    router, scope = [await model.with_adapter(name) for name in ("router", "scope")]
    said = await asyncio.gather(*(m.chat(HELLO, max_tokens=5) for m in (router, model, scope)))
    assert [each.text for each in said] == ["as router", "as m", "as scope"]
    assert router.name == said[0].model == f"openai:router@{openai_server.url}"
    await router.aclose()  # leaves the model itself open
    assert (await model.chat(HELLO, max_tokens=5)).text == "as m"
    again = await scope.with_adapter("router")  # in place of it
    assert (await again.chat(HELLO, max_tokens=5)).text == "as router"


async def test_what_one_model_of_a_server_refuses_another_may_take(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.refused_forms = ["json_schema"]
    await model.chat(HELLO, max_tokens=9, schema=SCHEMA)
    adapted = await model.with_adapter("router")
    assert Capability.STRUCTURED not in model.capabilities
    assert Capability.STRUCTURED in adapted.capabilities


async def test_what_its_base_was_asked_an_adapter_is_asked_too(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.logprobs = {"Local": 0.7, "Global": 0.2}
    assert Capability.LABELS not in (await model.with_adapter("early")).capabilities
    await model.probe()
    adapted = await model.with_adapter("scope")
    assert Capability.LABELS in adapted.capabilities
    odds = await adapted.labels(HELLO, ("Local", "Global"))
    assert odds.odds["Local"] == pytest.approx(7 / 9)
    assert openai_server.requests[-1]["model"] == "scope"


async def test_an_adapter_that_the_server_does_not_list(
    openai_server: Any, model: OpenAIChat
) -> None:
    openai_server.models = ["m", "router"]
    with pytest.raises(WeightsUnavailable, match="no adapter rooter: its server has m, rou"):
        await model.with_adapter("rooter")
    openai_server.models = []  # it does not say which it has
    assert (await (await model.with_adapter("rooter")).chat(HELLO, max_tokens=5)).text
