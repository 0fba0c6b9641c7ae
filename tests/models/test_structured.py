"""From what models write to what was asked for, or a clear error; never endless."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field

import colligate
from colligate.errors import (
    ContextTooSmall,
    MalformedOutput,
    ModelError,
    RateLimited,
    RequestRefused,
)
from colligate.models import Completion, Message
from colligate.models.openai import OpenAIChat
from colligate.models.structured import (
    ask_structured,
    json_schema_of,
    parse,
    repair_json,
    schema_instruction,
    with_schema,
)

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
def test_parse(text, stage):
    assert parse(text, City) == (PARIS, stage)


@pytest.mark.parametrize(
    "text", ["", "Paris", "{", "}{", "null", "[1, 2]", '{"name": 1}', "{" * 5000, "[" * 5000]
)
def test_parse_gives_up(text):
    with pytest.raises(ValueError, match=r"JSON|name|people|valid"):
        parse(text, City)


class Item(BaseModel):
    quote: str = Field(max_length=10)
    page: int


class Reply(BaseModel):
    items: list[Item] = Field(max_length=2)
    note: str = Field(default="none", max_length=5)


class Group(BaseModel):
    replies: list[Reply] = Field(max_length=3)


A, B, C = ({"quote": name, "page": 1} for name in "abc")


@pytest.mark.parametrize(
    ("given", "mended"),
    [
        ({"items": [A, B, C]}, {"items": [A, B]}),
        ({"items": [{**A, "quote": "some words " * 9}]}, {"items": [{**A, "quote": "some"}]}),
        ({"items": [{**A, "quote": "x" * 11}]}, {"items": [{**A, "quote": "x" * 10}]}),
        ({"items": [{"quote": "b"}, A]}, {"items": [A]}),
        ({"items": [A, {**B, "page": "two"}]}, {"items": [A]}),
        ({"items": ["a", A]}, {"items": [A]}),
        ({"items": [A], "note": ["x"]}, {"items": [A]}),
        ({"items": [A], "note": "beyond"}, {"items": [A], "note": "beyon"}),
        ({"items": [A, B, C, {}], "note": 3, "more": 1}, {"items": [A, B]}),
    ],
)
def test_a_reply_one_notch_off_is_trimmed(given, mended):
    assert parse(json.dumps(given), Reply) == (Reply.model_validate(mended), "repaired")


def test_an_item_whose_own_list_has_nothing_valid_is_removed():
    rows = [{"items": [{}, {"quote": "b"}]}, {"items": [A, {}]}, {"items": 3}]
    value, _ = parse(json.dumps({"replies": rows}), Group)
    assert value == Group.model_validate({"replies": [{"items": [A]}]})


@pytest.mark.parametrize("given", [{"items": [{}, {"quote": "b"}]}, {"items": {}}, {"note": "x"}])
def test_a_reply_without_any_valid_item_is_unusable(given):
    with pytest.raises(ValueError, match="items"):
        parse(json.dumps(given), Reply)


def test_of_a_cut_reply_the_complete_parts_are_used():
    text = json.dumps({"items": [A, B], "note": "word"})
    seen = set()
    for end in range(1, len(text)):
        with contextlib.suppress(ValueError):
            value, stage = parse(text[:end], Reply)
            assert stage == "repaired"
            assert value.items in ([Item(**A)], [Item(**A), Item(**B)])
            seen.add(len(value.items))
            assert value.note in ("none", "word")
    assert seen == {1, 2}


def test_a_cut_text_of_the_object_itself_is_used_if_it_is_required():
    assert parse('{"people": 2, "name": "Par', City) == (City(name="Par", people=2), "repaired")


@pytest.mark.parametrize("text", ["I {cannot} answer.", "{", "It is {unclear: why}."])
def test_repair_does_not_make_answers_of_prose(text):
    with pytest.raises(ValueError, match="no JSON"):
        parse(text, Loose)


def test_braces_in_prose_are_no_object():
    text = 'Of {} and {"unrelated": 1} I take {"found": true}.'
    assert parse(text, Loose) == (Loose(found=True), "parsed")


@pytest.mark.parametrize("bit", ["{", '{"', '{"a":', '{"a":[', "```json\n{", '{"a": {}, '])
def test_the_time_that_hostile_text_takes_is_bounded(bit):
    began = time.process_time()
    with pytest.raises(ValueError, match=r"JSON|name|people|valid"):
        parse(bit * (100_000 // len(bit)), City)
    assert time.process_time() - began < 3  # in the square of its length it would be minutes


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("```" + " " * 60_000, id="an open fence before blanks"),
        pytest.param("```json\n" + "\n" * 60_000, id="an open fence before lines"),
        pytest.param('{"a":[' + "1," * 50, id="arrays in arrays"),
        pytest.param("```{'a': {'b'" + " x" * 20_000 + "```", id="broken fences"),
        pytest.param("word {x} ", id="braces in prose"),
        pytest.param('{"name": "' + "a" * 100, id="open strings"),
        pytest.param("1" * 10_000, id="long numbers"),
    ],
)
def test_the_time_that_a_huge_answer_takes_is_bounded(text):
    huge = text * (2_000_000 // len(text))
    began = time.process_time()
    with pytest.raises(ValueError, match=r"JSON|name|people|valid"):
        parse(huge, City)
    assert time.process_time() - began < 3


class Nested(BaseModel):
    inner: Nested | None = None


@pytest.mark.parametrize("depth", [20, 2_000, 200_000])
@pytest.mark.parametrize("closed", [True, False])
def test_deep_nesting_is_read_or_refused(depth, closed):
    text = '{"inner": ' * depth + ("null" + "}" * depth if closed else "")
    read = False
    with contextlib.suppress(ValueError):
        read = isinstance(parse(text, Nested)[0], Nested)
    assert read or depth > 20 or not closed


def test_what_is_said_of_a_fault_is_short_whatever_the_answer_holds():
    class Strict(BaseModel, extra="forbid"):
        name: str

    with pytest.raises(ValueError, match="name") as caught:
        parse(json.dumps({"x\n\n" * 50_000: 1, "name": 2}), Strict)
    assert len(str(caught.value)) <= 500
    assert "\n" not in str(caught.value)


@settings(max_examples=200)
@given(st.text(alphabet='{}[]":,`\\n\\\\ aname01\ud800é', max_size=80))
def test_any_text_is_read_or_refused(text):
    for schema in (City, Loose):
        try:
            value, stage = parse(text, schema)
        except ValueError:
            continue
        assert isinstance(value, schema)
        assert stage in ("parsed", "repaired")


@settings(max_examples=100)
@given(st.text(), st.integers(0, 10**6), st.text(alphabet="ab {}\n", max_size=10))
def test_any_object_is_found_in_any_prose(name, people, prose):
    city = City(name=name, people=people)
    text = f"{prose}\n{json.dumps({'name': name, 'people': people})}\n{prose}"
    assert parse(text, City)[0] == city


async def test_the_first_answer_will_do(scripted_model):
    model = scripted_model(['{"name": "Paris", "people": 2}'])
    result = await ask_structured(model.chat, ASK, City, max_tokens=50)
    assert result.value == PARIS
    assert result.stages == {"parsed": 1, "repaired": 0, "asked_again": 0, "failed": 0}
    assert len(result.completions) == 1
    assert model.calls[0].schema == City.model_json_schema()
    assert model.calls[0].max_tokens == 50


async def test_asked_again_with_the_error(scripted_model):
    model = scripted_model(['{"name": "Paris", "people": -2}', '{"name": "Paris", "people": 2}'])
    result = await ask_structured(model.chat, ASK, City, max_tokens=50)
    assert result.value == PARIS
    assert result.stages["asked_again"] == 1
    *_, answer, complaint = model.calls[1].messages
    assert answer == Message("assistant", '{"name": "Paris", "people": -2}')
    assert "people" in complaint.content
    assert "greater than or equal to 0" in complaint.content


async def test_only_the_last_failure_is_shown_again(scripted_model):
    model = scripted_model(["one", "two", '{"name": "Paris", "people": 2}'])
    await ask_structured(model.chat, ASK, City, max_tokens=50, retries=2)
    assert [len(call.messages) for call in model.calls] == [1, 3, 3]
    assert "one" not in model.calls[2].prompt


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_never_endless(scripted_model, retries):
    model = scripted_model(lambda call: "I would rather not.")
    stages: list[str] = []
    with pytest.raises(MalformedOutput, match=r"City.*no JSON object"):
        await ask_structured(
            model.chat, ASK, City, max_tokens=50, retries=retries, on_stage=stages.append
        )
    assert len(model.calls) == retries + 1
    assert stages == ["asked_again"] * retries + ["failed"]


async def test_each_answer_is_counted_once_as_it_happens(scripted_model):
    model = scripted_model(["no", "{'name': 'Paris', 'people': 2}"])
    stages: list[str] = []
    result = await ask_structured(model.chat, ASK, City, max_tokens=50, on_stage=stages.append)
    assert stages == ["asked_again", "repaired"]
    assert result.stages == {"parsed": 0, "repaired": 1, "asked_again": 1, "failed": 0}


@pytest.mark.parametrize("failure", [RateLimited("later"), ContextTooSmall("too long")])
async def test_an_answer_no_other_came_after_has_failed(scripted_model, failure):
    stages: list[str] = []
    with pytest.raises(ModelError):
        await ask_structured(
            scripted_model(["no", failure]).chat, ASK, City, max_tokens=9, on_stage=stages.append
        )
    assert stages == ["failed"]


async def test_a_model_that_ignores_schemas_is_told_in_the_prompt(scripted_model):
    model = scripted_model(["no", '{"name": "Paris", "people": 2}'])
    await ask_structured(model.chat, ASK, City, max_tokens=50, schema_in_prompt=True)
    instruction = schema_instruction(City.model_json_schema())
    for call in model.calls:
        assert call.messages[0] == Message("user", f"Which city?\n\n{instruction}")
        assert call.prompt.count("JSON schema") == 1
    assert [message.role for message in model.calls[1].messages] == ["user", "assistant", "user"]


class Country(BaseModel):
    """A docstring for readers of the code."""

    class Region(BaseModel):
        """Another one."""

        name: str

    capital: City = Field(description="its largest city")
    regions: list[Region]


def test_a_schema_has_the_descriptions_of_fields_and_no_docstrings():
    schema = json_schema_of(Country)
    assert json.dumps(schema).count('"description"') == 1
    assert schema["properties"]["capital"]["description"] == "its largest city"


def test_the_schema_is_a_turn_of_its_own_after_another_role_and_never_twice():
    system = [Message("system", "Be brief.")]
    once = with_schema(system, {"type": "object"})
    assert [message.role for message in once] == ["system", "user"]
    assert with_schema(once, {"type": "object"}) == once
    asked_again = [*once, Message("assistant", "no"), Message("user", "Answer again.")]
    assert with_schema(asked_again, {"type": "object"}) == asked_again


@pytest.mark.parametrize("forms", [{"json_schema"}, {"json_schema", "json_object"}])
async def test_over_http_the_schema_stands_in_the_prompt_once(openai_server, policy, forms):
    openai_server.refused_forms = forms
    openai_server.answer = '{"name": "Paris", "people": 2}'
    model = OpenAIChat("m", openai_server.url, policy=policy)
    for in_prompt in (False, True):  # before the server has refused the schema, and after
        await ask_structured(model.chat, ASK, City, max_tokens=50, schema_in_prompt=in_prompt)
        sent = openai_server.requests[-1]["messages"]
        assert sum(message["content"].count("JSON schema") for message in sent) == 1
    await model.aclose()


async def test_a_cut_answer_that_was_mended_is_said(scripted_model):
    cut = Completion('{"found": true, "notes": ["one", "tw', finish_reason="length")
    result = await ask_structured(scripted_model([cut]).chat, ASK, Loose, max_tokens=9)
    assert result.value.notes == ["one"]
    assert "cut at 9 tokens" in result.warnings[0]


@pytest.mark.parametrize(("most", "second"), [(None, 18), (12, 12), (3, 9)])
async def test_after_a_cut_answer_the_next_may_be_longer(scripted_model, most, second):
    async def most_tokens(messages):
        return most

    cut = Completion('{"name": "P', finish_reason="length")
    model = scripted_model([cut, '{"name": "Paris", "people": 2}'])
    await ask_structured(model.chat, ASK, City, max_tokens=9, most_tokens=most_tokens)
    assert [call.max_tokens for call in model.calls] == [9, second]


async def test_no_room_for_the_second_question(scripted_model):
    model = scripted_model(["nonsense", ContextTooSmall("too long")])
    with pytest.raises(MalformedOutput, match="1 answers"):
        await ask_structured(model.chat, ASK, City, max_tokens=50)


async def test_other_failures_pass(scripted_model):
    model = scripted_model([RateLimited("later")])
    with pytest.raises(RateLimited):
        await ask_structured(model.chat, ASK, City, max_tokens=50)


async def test_over_http_without_any_schema_support(openai_server, policy):
    openai_server.refused_forms = {"json_schema", "json_object"}
    openai_server.answer = "Well: {'name': 'Paris', 'people': 2}"
    model = OpenAIChat("m", openai_server.url, policy=policy)
    result = await ask_structured(model.chat, ASK, City, max_tokens=50)
    assert result.value == PARIS
    assert result.stages["repaired"] == 1
    assert len(result.warnings) == 2
    await model.aclose()


async def test_a_schema_no_decoder_can_be_held_to_is_asked_for_in_the_prompt(scripted_model):
    refusal = RequestRefused("m cannot be held to this schema", "it has uniqueItems")
    model = scripted_model([refusal, PARIS.model_dump_json()])
    result = await ask_structured(model.chat, ASK, City, max_tokens=50, retries=0)
    assert result.value == PARIS
    held, free = model.calls
    assert held.schema == City.model_json_schema()
    assert free.schema is None
    assert free.prompt.endswith(schema_instruction(City.model_json_schema()))
    assert "cannot be constrained to City (it has uniqueItems)" in result.warnings[0]


async def test_what_is_refused_without_a_schema_too_is_refused(scripted_model):
    model = scripted_model([RequestRefused(f"refusal {n}") for n in range(9)])
    with pytest.raises(RequestRefused, match="refusal 1"):
        await ask_structured(model.chat, ASK, City, max_tokens=50)
    assert len(model.calls) == 2


@pytest.mark.parametrize(
    ("broken", "value"),
    [
        ('["a", "b', ["a", "b"]),
        ("{name: 'Ur', people: 3,", {"name": "Ur", "people": 3}),
        ('["a"] ' + "[" * 5000, ["a"]),
    ],
)
def test_broken_json_is_repaired(broken, value):
    repaired = repair_json(broken)
    assert repaired == value or value[0] in repaired


@given(
    st.one_of(
        st.text('[]{}":,a \\', max_size=200),
        st.builds(lambda text, times: text * times, st.text('[{":a', max_size=9), st.just(9000)),
    )
)
def test_a_repair_ends_for_any_text(text):
    json.dumps(repair_json(text))  # so it is not nested too deeply to be read


def test_all_repairs_go_through_one_function():
    source = Path(colligate.__file__).parent
    using = [each for each in source.rglob("*.py") if "json_repair" in each.read_text("utf-8")]
    assert [each.name for each in using] == ["structured.py"]
