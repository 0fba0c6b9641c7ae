"""`colligate ask --schema`: an answer in the shape of a JSON Schema."""

import json
from pathlib import Path
from typing import Any

import pytest

from support.prompts import passages_in

SCHEMA = {
    "type": "object",
    "properties": {
        "built": {"type": "integer", "description": "the year in which the tower was built"},
        "height": {"type": ["number", "null"]},
        "lamp": {"anyOf": [{"$ref": "#/$defs/lamp"}, {"type": "null"}]},
        "ships/day": {"type": "integer"},
        "people": {"type": "array", "items": {"$ref": "#/$defs/person"}},
    },
    "$defs": {
        "lamp": {"enum": ["oil", "gas", None]},
        "person": {"properties": {"name": {"type": "string"}, "born": {"format": "date"}}},
    },
}
SAID = {
    "built": ("The tower was built in 1871", 1871),
    "height": ("It is 41 metres high.", 14),  # not what the quote says
    "lamp": ("The lamp burns rapeseed oil.", "oil"),
    "ships/day": ("Ten ships a day.", 10),  # nowhere
}


def reply(body: dict[str, Any]) -> str:
    prompt = "\n".join(turn["content"] for turn in body["messages"])
    fields = body["response_format"]["json_schema"]["schema"]["properties"]
    if "judgements" in fields:
        lamp = "contradicts" if "lamp: oil" in prompt else "supports"
        said = dict.fromkeys(range(1, 9), "supports")
        said |= {number: lamp for number in said if f"Statement {number}: lamp" in prompt}
        return json.dumps({"judgements": [{"number": n, "verdict": v} for n, v in said.items()]})
    if "built" not in fields:
        return json.dumps({"statements": [], "short_answer": "", "found": False})
    shown = passages_in(prompt)

    def find(quote: str, value: Any) -> dict[str, Any]:
        number = next((n for n, text in shown.items() if quote in text), 1)
        return {"passage": number, "quote": quote, "value": value}

    people = [
        {"name": find("by Ada Mercer", "Ada Mercer"), "born": None},
        {"name": find("by Bo Vik", "Bo Vik"), "born": None},
    ]
    return json.dumps({name: find(*each) for name, each in SAID.items()} | {"people": people})


@pytest.fixture
def filling(openai_server: Any, colligate: Any, folder: Path, tmp_path: Path) -> Any:
    """`filling(option...)` fills the schema from the two documents."""
    openai_server.answer = reply
    (tmp_path / "shape.json").write_text(json.dumps(SCHEMA))

    def run(*given: str | Path) -> Any:
        model = f"openai:reader@{openai_server.url}"
        return colligate.here(
            "ask", "What is known of the tower?", folder, "--model", model, "--embedder", "static",
            "--strategy", "retrieve-read", "--schema", tmp_path / "shape.json", *given,
        )  # fmt: skip

    return run


FILLED = dict.fromkeys(SAID) | {"built": 1871, "people": [{"name": "Ada Mercer", "born": None}]}


def test_each_value_is_cited_and_null_where_nothing_says_it(filling):
    done = filling("--json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["filled"] == json.loads(answer["answer"]) == FILLED
    by_path = {each["path"]: each for each in answer["values"]}
    assert [*by_path] == ["/built", "/people/0/name"]
    for each in by_path.values():
        assert each["meaning"] == "supports"
        citation = answer["citations"][each["citation"] - 1]
        assert "built in 1871 by Ada Mercer." in citation["quote"]
        texts = [answer["answer"][start:end] for start, end in citation["answer_spans"]]
        assert json.dumps(each["value"]) in texts
    for why in (
        "/height is left out: its quote does not say 14",
        "/lamp is left out: its quote contradicts “oil”",
        "/ships~1day is left out: its quote is in no passage",
        "/people/*/name is left out: its quote is in no passage",
    ):
        assert why in answer["warnings"]


def test_people_see_the_object_and_which_value_a_source_is_for(filling, tmp_path):
    done = filling("-o", tmp_path / "a.md")
    shown, source = done.stdout.split("\n\n", 1)
    assert json.loads(shown) == FILLED
    assert source.splitlines()[1] == "    /built, /people/0/name"
    written = (tmp_path / "a.md").read_text("utf-8")
    assert '    {\n      "built": 1871,' in written
    assert "tower.md): /built, /people/0/name\n" in written


def test_a_schema_of_which_nothing_is_said_is_status_3(filling, folder):
    (folder / "tower.md").unlink()
    done = filling("--json")
    assert done.returncode == 3
    nothing = dict.fromkeys(FILLED) | {"people": []}
    assert json.loads(done.stdout)["filled"] == nothing


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "no schema is there"),
        ("{}", "the schema of an object"),
        ({"type": "string"}, "the schema of an object"),
        ({"items": {"type": "string"}}, "the schema of an object"),
        ({"properties": {}}, "the schema of an object"),
        ({"properties": {"a": {"type": "object"}}}, "at /a: a value is of type string"),
        ({"properties": {"a": {"type": [{}]}}}, "at /a: a value is of type string"),
        ({"properties": {"a": {"type": 3}}}, "at /a: a value is of type string"),
        ({"properties": {"a": {"enum": [{}]}}}, "at /a: only texts and whole numbers"),
        ({"properties": {"a": {"anyOf": [{}, {"type": "string"}]}}}, "several kinds"),
        ({"properties": {"a": {"$ref": "#/none"}}}, "at /a: no schema is there"),
        ({"properties": {"a": {"$ref": "#"}}}, "refers to itself"),
        ({"properties": {"a": {"$ref": "#/properties/a"}}}, "references do not end"),
        ({"properties": {"a": {"$ref": "http://example.org"}}}, "at /a: no schema is there"),
        ({"properties": {f"a{n}": {} for n in range(201)}}, "more than 200 values"),
    ],
)
def test_a_schema_that_nothing_fills_is_wrong_usage(filling, openai_server, tmp_path, schema, says):
    text = schema if isinstance(schema, str) else json.dumps(schema)
    (tmp_path / "shape.json").write_text(text)
    done = filling()
    assert done.returncode == 2
    assert says in done.stderr.splitlines()[-1]
    assert openai_server.requests == []
