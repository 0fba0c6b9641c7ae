"""LangChain's own OpenAI model over the OpenAI-compatible endpoint."""

from typing import Any

import openai
import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr

QUESTION = "Where do bicycles stand?"
CLAIM = "Bicycles stand in the yard."


@pytest.fixture
def chat(served: Any) -> ChatOpenAI:
    options = {"api_key": SecretStr(served.token), "max_retries": 0, "timeout": 30}
    return ChatOpenAI(model="retrieve-read", base_url=served.url + "v1", **options)


def test_a_question_is_answered_with_what_it_took_and_a_stream_adds_up_to_it(chat):
    answer = chat.invoke([SystemMessage("Be brief."), HumanMessage(QUESTION)])
    assert answer.text.startswith(f"{CLAIM} [1]")
    assert answer.text.endswith("Sources:\n\n[1] House rules › Bicycles (rules.md)")
    assert answer.usage_metadata["input_tokens"] > 0
    assert answer.response_metadata["finish_reason"] == "stop"
    together: Any = None
    for chunk in chat.stream(QUESTION, stream_usage=True):
        together = chunk if together is None else together + chunk
    assert together.text == answer.text
    assert together.usage_metadata == answer.usage_metadata


def test_an_answer_has_the_shape_of_a_model(chat):
    class Place(BaseModel):
        where: str | None
        how_many: int | None

    found = chat.with_structured_output(Place).invoke(QUESTION)
    assert found == Place(where="<the yard>", how_many=None)


def test_tools_may_be_bound_and_errors_are_openais(chat):
    def weather(place: str) -> str:
        """The weather of a place."""
        return place

    answer: Any = chat.bind_tools([weather]).invoke(QUESTION)
    assert answer.text.startswith(CLAIM)
    assert answer.tool_calls == []
    with pytest.raises(openai.BadRequestError, match="tool_choice"):
        chat.bind_tools([weather], tool_choice="any").invoke(QUESTION)
    with pytest.raises(openai.NotFoundError, match="unknown strategy"):
        chat.model_copy(update={"model_name": "gpt-5"}).invoke(QUESTION)
