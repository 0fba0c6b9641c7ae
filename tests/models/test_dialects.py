"""What each provider's own way of speaking OpenAI's protocol comes to: the same for a user."""

import json
from typing import Any

import pytest

from colligate.errors import (
    ContextTooSmall,
    MissingCapability,
    ModelError,
    NotAuthorised,
    RateLimited,
    UnknownModel,
)
from colligate.models import Capability
from colligate.models.openai import OpenAIChat
from support.dialects import OBJECT, PROSE, PROVIDERS, SCHEMA, Provider
from support.models import HELLO, ask


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest, openai_server: Any) -> Provider:
    provider = PROVIDERS[request.param]
    provider.play(openai_server)
    return provider


def left_out(provider: Provider) -> set[str]:
    """What a user is told of that the provider does not take."""
    return {name for name in provider.refuses if name in ("temperature", "seed")}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat(openai_server, model, provider, stream):
    pieces: list[str] = []
    on_token = pieces.append if stream else None
    first = await ask(model, seed=1, on_token=on_token)
    assert {warning.split()[4].strip(";") for warning in first.warnings} == left_out(provider)
    openai_server.requests.clear()
    completion = await ask(model, seed=1, on_token=on_token)
    assert completion.text == PROSE
    assert "".join(pieces) == (PROSE * 2 if stream else "")
    assert completion.thinking == ("Where?" if provider.thinking else "")
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (20, 7)
    assert completion.usage.cached_tokens == (9 if provider.cached else 0)
    assert completion.warnings == ()
    assert len(openai_server.requests) == 1  # what is refused is asked for once


async def test_a_schema(openai_server, model, provider):
    enforced = provider.schemas and "response_format" not in provider.refuses
    first = await ask(model, schema=SCHEMA)
    warned = [warning for warning in first.warnings if "JSON schema" in warning]
    assert bool(warned) != enforced
    assert (Capability.STRUCTURED in model.capabilities) == enforced
    openai_server.requests.clear()
    again = await ask(model, schema=SCHEMA)
    assert json.loads(again.text) == json.loads(OBJECT)
    [sent] = openai_server.requests
    assert ("response_format" in sent) == enforced
    assert ('"place"' in sent["messages"][-1]["content"]) != enforced


async def test_odds(openai_server, model, provider):
    offered = await model.probe()
    assert (Capability.LABELS in offered) == provider.odds
    if provider.odds:
        odds = await model.labels(HELLO, ["Yes", "No"])
        assert odds.odds["Yes"] == pytest.approx(0.75)
    else:
        with pytest.raises(MissingCapability, match="gives no label probabilities"):
            await model.labels(HELLO, ["Yes", "No"])


ERRORS: list[tuple[str, type[ModelError] | type[UnknownModel], str]] = [
    ("too_long", ContextTooSmall, "does not fit"),
    ("no_model", UnknownModel, "no model 'm'"),
    ("bad_key", NotAuthorised, "wants a key: .*; set OPENAI_API_KEY"),
]


@pytest.mark.parametrize(("what", "error", "said"), ERRORS)
async def test_an_error_is_one_line(openai_server, model, provider, waits, what, error, said):
    refusal = (400, provider.too_long, None) if what == "too_long" else getattr(provider, what)
    openai_server.models = ["gpt-5", "m"] if "deployment" in refusal[1] else []  # as Azure lists
    openai_server.script += [provider.fail(refusal)] * 4
    with pytest.raises(error, match=said) as caught:
        await ask(model, schema=SCHEMA)
    assert "\n" not in str(caught.value)
    assert refusal[1][:40] in str(caught.value)
    assert waits == []


async def test_a_spent_balance_is_not_a_limit_of_calls(openai_server, model, waits):
    openai_server.fail(402, "Insufficient Balance")
    with pytest.raises(RateLimited, match=r"no quota left at .*Insufficient Balance; add credit"):
        await ask(model)
    assert waits == []


async def test_a_limit_of_calls_is_waited_for(openai_server, model, provider, waits):
    header, in_body = provider.wait
    headers = {"Retry-After": header} if header else {}
    limit = (429, "Rate limit reached for requests", None)
    openai_server.script.append(provider.fail(limit, headers=headers, param=in_body))
    assert (await ask(model)).text == PROSE
    assert waits == [3.0]


async def test_thinking_that_used_all_tokens_gets_room(openai_server, model):
    PROVIDERS["openai, reasoning"].play(openai_server)
    message = (
        "Could not finish the message because max_tokens or model output limit was reached. Please"
        " try again with higher max_tokens."
    )
    openai_server.fail(400, message)
    completion = await ask(model, max_tokens=10)
    assert completion.text == PROSE
    assert "spent all its tokens on thinking" in completion.warnings[0]
    assert openai_server.requests[-1]["max_completion_tokens"] == 4106


async def test_thinking_that_google_counts_in_the_total_alone_gets_room(openai_server, model):
    usage = {"prompt_tokens": 7, "completion_tokens": 0, "total_tokens": 17}
    openai_server.say("", finish_reason="length", usage=usage)
    completion = await ask(model, max_tokens=10)
    assert completion.usage.output_tokens >= 10
    assert "spent all its tokens on thinking" in completion.warnings[0]


async def test_a_budget_for_thinking_is_added_to_the_answer(openai_server, policy):
    """Anthropic refuses a limit that the budget exceeds, and any temperature but 1."""
    message = "`temperature` may only be set to 1 when thinking is enabled or in adaptive mode."
    openai_server.fail(400, message)
    extra = {"thinking": {"type": "enabled", "budget_tokens": 2000}}
    model = OpenAIChat("m", openai_server.url, policy=policy, extra_body=extra)
    assert (await ask(model, max_tokens=10)).text == "Hello."
    assert openai_server.requests[-1]["max_tokens"] == 2010
    assert openai_server.requests[-1]["thinking"] == extra["thinking"]
    assert "temperature" not in openai_server.requests[-1]
    await model.aclose()


async def test_what_the_user_adds_is_sent_as_it_is_or_an_error(openai_server, policy):
    template = {"chat_template_kwargs": {"enable_thinking": False}}
    extra: dict[str, Any] = {"temperature": 0.7, **template}
    model = OpenAIChat("m", openai_server.url, policy=policy, extra_body=extra)
    await ask(model)
    assert extra.items() <= openai_server.requests[-1].items()
    openai_server.tokenizer, openai_server.likelihood = "vllm", "prompt_logprobs"
    await model.labels(HELLO, ["yes it is", "no"])
    templated = [sent for sent in openai_server.requests if sent["path"].endswith("/tokenize")]
    assert template.items() <= next(s for s in templated if "messages" in s).items()
    openai_server.refused = {"temperature"}
    with pytest.raises(ModelError, match="Unsupported parameter: 'temperature'"):
        await ask(model)
    await model.aclose()


async def test_a_content_filter_is_named(openai_server, model):
    policy = "The response was filtered due to the prompt triggering Azure OpenAI's content"
    openai_server.fail(400, f"{policy} management policy.", code="content_filter", param="prompt")
    with pytest.raises(ModelError, match=r"content filter of .* refuses the prompt"):
        await ask(model, schema=SCHEMA)
    assert len(openai_server.requests) == 1
    openai_server.say("Half of", finish_reason="content_filter")
    assert "content filter" in (await ask(model)).warnings[0]


async def test_a_refusal_says_nothing_of_schemas(openai_server, model):
    message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    body = {"choices": [{"message": message, "finish_reason": "stop"}]}
    openai_server.garble(json.dumps(body).encode())
    assert (await ask(model, schema=SCHEMA)).text == "I cannot help with that."
    assert Capability.STRUCTURED in model.capabilities
