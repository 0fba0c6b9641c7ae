"""LangChain's own OpenAI model over the OpenAI-compatible endpoint."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from langchain_core.messages import AIMessageChunk, HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

QUESTION = "Where do bicycles stand?"
CLAIM = "Bicycles stand in the yard."


@pytest.fixture
def chat(served: Any) -> ChatOpenAI:
    return ChatOpenAI(
        model="retrieve-read",
        base_url=served.url + "v1",
        api_key=SecretStr(served.token),
        max_retries=0,
        timeout=30,
    )


def test_a_question_is_answered_with_what_it_took(chat):
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)])
    assert answer.text.startswith(f"{CLAIM} [1]")
    assert answer.usage_metadata is not None
    assert answer.usage_metadata["input_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"
    assert answer.response_metadata["model_name"] == "colligate/retrieve-read"
    assert answer.text.endswith("Sources:\n\n[1] House rules › Bicycles (rules.md)")
    assert "annotations" not in answer.additional_kwargs  # so the sources are said in the text


def test_a_stream_adds_up_to_the_same(chat):
    whole = chat.invoke(QUESTION)
    together: Any = None
    pieces = 0
    for chunk in chat.stream(QUESTION, stream_usage=True):
        assert isinstance(chunk, AIMessageChunk)
        pieces += bool(chunk.text)
        together = chunk if together is None else together + chunk
    assert pieces > 1
    assert together.text == whole.text
    assert together.usage_metadata == whole.usage_metadata


def test_tools_may_be_bound_and_none_is_called(chat):
    def weather(place: str) -> str:
        """The weather of a place."""
        return place

    answer: Any = chat.bind_tools([weather]).invoke(QUESTION)
    assert answer.text.startswith(CLAIM)
    assert answer.tool_calls == []
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        chat.bind_tools([weather], tool_choice="any").invoke(QUESTION)


def test_what_goes_wrong_is_what_openai_would_raise(chat, served):
    with pytest.raises(openai.NotFoundError, match="unknown strategy"):
        chat.model_copy(update={"model_name": "gpt-5"}).invoke(QUESTION)
    stranger = ChatOpenAI(model="duquad", base_url=served.url + "v1", api_key=SecretStr("x"))
    with pytest.raises(openai.AuthenticationError):
        stranger.invoke(QUESTION)
