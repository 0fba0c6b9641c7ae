"""From what models write to what was asked for, or a clear error; never endless."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from colligate import errors
from colligate.models import Completion, Message
from colligate.models.openai_chat import OpenAIChat
from colligate.models.structured import parse, structured
from colligate.models.transport import Policy

ASK = [Message("user", "Which city?")]


class City(BaseModel):
    name: str
    people: int = Field(ge=0)


class Loose(BaseModel):
    found: bool = False
    notes: list[str] = []


PARIS = City(name="Paris", people=2)


@pytest.mark.parametrize(
    ("text", "stage"),
    [
        ('{"name": "Paris", "people": 2}', "parsed"),
        ('  {"name": "Paris", "people": 2}\n', "parsed"),
        ('Here it is:\n```json\n{"name": "Paris", "people": 2}\n```\nDone.', "parsed"),
        ('```\n{"name": "Paris", "people": 2}```', "parsed"),
        ('The answer is {"name": "Paris", "people": 2}, I think.', "parsed"),
        ('Of {form} {"name": "x"} then {"name": "Paris", "people": 2}', "parsed"),
        ('{"name": "Paris", "people": "2"}', "parsed"),
        ("{'name': 'Paris', 'people': 2}", "repaired"),
        ('{"name": "Paris", "people": 2', "repaired"),
        ('{"name": "Paris", "people": 2,}', "repaired"),
        ("{name: Paris, people: 2}", "repaired"),
        ('{"name": "Paris", // the capital\n "people": 2}', "repaired"),
    ],
)
def test_parse(text: str, stage: str) -> None:
    assert parse(text, City) == (PARIS, stage)


@pytest.mark.parametrize(
    "text", ["", "Paris", "{", "}{", "null", "[1, 2]", '{"name": 1}', "{" * 5000, "[" * 5000]
)
def test_parse_gives_up(text: str) -> None:
    with pytest.raises(ValueError, match=r"JSON|name|people|valid"):
        parse(text, City)


@pytest.mark.parametrize("text", ["I {cannot} answer.", "{", "It is {unclear: why}."])
def test_repair_does_not_make_answers_of_prose(text: str) -> None:
    with pytest.raises(ValueError, match="no JSON"):
        parse(text, Loose)


def test_braces_in_prose_are_no_object() -> None:
    text = 'Of {} and {"unrelated": 1} I take {"found": true}.'
    assert parse(text, Loose) == (Loose(found=True), "parsed")


@pytest.mark.parametrize("bit", ["{", '{"', '{"a":', '{"a":[', "```json\n{", '{"a": {}, '])
def test_the_time_that_hostile_text_takes_is_bounded(bit: str) -> None:
    began = time.process_time()
    with pytest.raises(ValueError, match=r"JSON|name|people|valid"):
        parse(bit * (100_000 // len(bit)), City)
    assert time.process_time() - began < 3  # in the square of its length it would be minutes


@settings(max_examples=100, deadline=None)
@given(st.text(), st.integers(0, 10**6), st.text(alphabet="ab {}\n", max_size=10))
def test_any_object_is_found_in_any_prose(name: str, people: int, prose: str) -> None:
    city = City(name=name, people=people)
    text = f"{prose}\n{json.dumps({'name': name, 'people': people})}\n{prose}"
    assert parse(text, City)[0] == city


async def test_the_first_answer_will_do(scripted_model: Any) -> None:
    model = scripted_model(['{"name": "Paris", "people": 2}'])
    result = await structured(model.chat, ASK, City, max_tokens=50, seed=4)
    assert result.value == PARIS
    assert result.stages == {"parsed": 1, "repaired": 0, "asked_again": 0, "failed": 0}
    assert len(result.completions) == 1
    assert model.calls[0].schema == City.model_json_schema()
    assert (model.calls[0].max_tokens, model.calls[0].seed) == (50, 4)


async def test_asked_again_with_the_error(scripted_model: Any) -> None:
    model = scripted_model(['{"name": "Paris", "people": -2}', '{"name": "Paris", "people": 2}'])
    result = await structured(model.chat, ASK, City, max_tokens=50)
    assert result.value == PARIS
    assert result.stages["asked_again"] == 1
    *_, answer, complaint = model.calls[1].messages
    assert answer == Message("assistant", '{"name": "Paris", "people": -2}')
    assert "people" in complaint.content
    assert "greater than or equal to 0" in complaint.content


async def test_only_the_last_failure_is_shown_again(scripted_model: Any) -> None:
    model = scripted_model(["one", "two", '{"name": "Paris", "people": 2}'])
    await structured(model.chat, ASK, City, max_tokens=50)
    assert [len(call.messages) for call in model.calls] == [1, 3, 3]
    assert "one" not in model.calls[2].prompt


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_never_endless(scripted_model: Any, retries: int) -> None:
    model = scripted_model(lambda call: "I would rather not.")
    with pytest.raises(errors.MalformedOutput, match=r"City.*no JSON object"):
        await structured(model.chat, ASK, City, max_tokens=50, retries=retries)
    assert len(model.calls) == retries + 1


async def test_a_cut_answer_that_was_mended_is_said(scripted_model: Any) -> None:
    cut = Completion('{"found": true, "notes": ["one", "tw', finish_reason="length")
    result = await structured(scripted_model([cut]).chat, ASK, Loose, max_tokens=9)
    assert result.value.notes == ["one", "tw"]
    assert "cut at 9 tokens" in result.warnings[0]


async def test_no_room_for_the_second_question(scripted_model: Any) -> None:
    model = scripted_model(["nonsense", errors.ContextTooSmall("too long")])
    with pytest.raises(errors.MalformedOutput, match="1 answers"):
        await structured(model.chat, ASK, City, max_tokens=50)


async def test_other_failures_pass(scripted_model: Any) -> None:
    model = scripted_model([errors.RateLimited("later")])
    with pytest.raises(errors.RateLimited):
        await structured(model.chat, ASK, City, max_tokens=50)


async def test_over_http_without_any_schema_support(openai_server: Any, policy: Policy) -> None:
    openai_server.refused_forms = {"json_schema", "json_object"}
    openai_server.answer = "Well: {'name': 'Paris', 'people': 2}"
    model = OpenAIChat("m", openai_server.url, policy=policy)
    result = await structured(model.chat, ASK, City, max_tokens=50)
    assert result.value == PARIS
    assert result.stages["repaired"] == 1
    assert len(result.warnings) == 2
    await model.aclose()
