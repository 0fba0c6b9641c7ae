"""Objects that a run asks a model for: in a bounded number of calls, each reply counted once."""

import pytest
from pydantic import BaseModel, Field

from colligate.core.run import Run
from colligate.errors import ContextTooSmall, MalformedOutput, RequestRefused
from colligate.library.in_memory import InMemorySources
from colligate.models import Capability, ChatModel, Completion, Message, Role
from colligate.models.metering import Meter
from colligate.models.openai import OpenAIChat
from colligate.models.structured import schema_instruction

ASK = [Message("user", "Which city?")]


class City(BaseModel):
    name: str
    people: int = Field(ge=0)


class Loose(BaseModel):
    found: bool = False
    notes: list[str] = []


PARIS = City(name="Paris", people=2)
SAID = PARIS.model_dump_json()


def run_with(model: ChatModel) -> Run:
    return Run(InMemorySources(()), {Role.READER: model}, Meter())


async def test_asked_again_with_the_error(make_run):
    run, model = make_run(None, ['{"name": "Paris", "people": -2}', SAID])
    assert (await run.structured(ASK, City, max_tokens=50)).value == PARIS
    *_, answer, complaint = model.calls[1].messages
    assert answer == Message("assistant", '{"name": "Paris", "people": -2}')
    assert "people" in complaint.content
    assert "greater than or equal to 0" in complaint.content


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_never_endless(make_run, retries):
    run, model = make_run(None, lambda call: "I would rather not.")
    with pytest.raises(MalformedOutput, match=r"City.*no JSON object"):
        await run.structured(ASK, City, max_tokens=50, retries=retries)
    assert len(model.calls) == retries + 1


async def test_a_model_that_ignores_schemas_is_told_in_the_prompt(make_run):
    run, model = make_run(None, ["no", SAID], capabilities=(Capability.CHAT,))
    await run.structured(ASK, City, max_tokens=50)
    instruction = schema_instruction(City.model_json_schema())
    for call in model.calls:
        assert call.messages[0] == Message("user", f"Which city?\n\n{instruction}")
        assert call.prompt.count("JSON schema") == 1
    assert [message.role for message in model.calls[1].messages] == ["user", "assistant", "user"]


async def test_over_http_the_schema_stands_in_the_prompt_once(openai_server, policy):
    openai_server.refused_forms = {"json_schema"}
    openai_server.answer = SAID
    model = OpenAIChat("m", openai_server.url, policy=policy)
    for _ in range(2):  # before the server has refused the schema, and after
        await run_with(model).structured(ASK, City, max_tokens=50)
        sent = openai_server.requests[-1]["messages"]
        assert sum(message["content"].count("JSON schema") for message in sent) == 1
    await model.aclose()


async def test_a_cut_answer_that_was_mended_is_said(make_run):
    cut = Completion('{"found": true, "notes": ["one", "tw', finish_reason="length")
    run, _ = make_run(None, [cut])
    assert (await run.structured(ASK, Loose, max_tokens=9)).value.notes == ["one"]
    assert "cut at 9 tokens" in run.warnings[0]


async def test_no_room_for_the_second_question(make_run):
    run, _ = make_run(None, ["nonsense", ContextTooSmall("too long")])
    with pytest.raises(MalformedOutput, match="1 answers"):
        await run.structured(ASK, City, max_tokens=50)


async def test_a_schema_no_decoder_can_be_held_to_is_asked_for_in_the_prompt(make_run):
    refusal = RequestRefused("m cannot be held to this schema", "it has uniqueItems")
    run, model = make_run(None, [refusal, SAID])
    assert (await run.structured(ASK, City, max_tokens=50, retries=0)).value == PARIS
    held, free = model.calls
    assert held.schema == City.model_json_schema()
    assert free.schema is None
    assert free.prompt.endswith(schema_instruction(City.model_json_schema()))
    assert "cannot be constrained to City (it has uniqueItems)" in run.warnings[0]
