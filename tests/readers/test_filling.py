"""Answers in the shape of a Pydantic model, from Python."""

import json
from datetime import date
from typing import Literal

import pytest
from pydantic import BaseModel, Field

from colligate import Engine, Library
from colligate.errors import ModelError
from colligate.models import Capability
from colligate.readers.filling import Shape
from colligate.testing import ScriptedModel
from support.models import NOT_FOUND

TEXT = "# Lease\n\nThe rent is 1,250 euros a month, from 1 May 2024. Pets are welcome.\n"


class Rent(BaseModel):
    """What is paid."""

    euros: float | None = Field(description="monthly rent in euros")
    since: date | None


class Lease(BaseModel):
    """A lease."""

    rent: Rent
    pets: bool | None
    kind: Literal["flat", "mill"] | None = None
    floors: list[int] = []


def quoted(quote, value):
    return {"passage": 1, "quote": quote, "value": value}


RENT = {"euros": quoted("1,250 euros a month", "1250"), "since": quoted("1 May 2024", "2024-05-01")}
FLAT = quoted("Pets are welcome", "flat")


@pytest.fixture
def engine(tmp_path):
    (tmp_path / "lease.md").write_text(TEXT)

    def make(reply):
        def say(call):
            return json.dumps(reply) if "pets" in call.schema["properties"] else NOT_FOUND

        model = ScriptedModel(say, capabilities=[Capability.CHAT, Capability.STRUCTURED])
        names = {"embedder": "static", "reranker": "none", "check": "none"}
        return {"model": model, **names}

    return make


@pytest.mark.parametrize(
    ("reply", "filled"),
    [
        ({"rent": RENT, "pets": quoted("Pets are welcome", True), "kind": FLAT, "floors": []},
         {"rent": {"euros": 1250, "since": "2024-05-01"}, "pets": True, "kind": "flat"}),
        # What has another type than the schema says is null, and so is what is missing.
        ({"rent": None, "pets": quoted("Pets are welcome", "perhaps"), "kind": FLAT},
         {"rent": {"euros": None, "since": None}, "pets": None, "kind": "flat"}),
        ({"rent": {}, "pets": None, "kind": quoted("1 May 2024", "castle"),
          "floors": [quoted("1 May 2024", 1), quoted("1 May 2024", 7), None]},
         {"rent": {"euros": None, "since": None}, "pets": None, "kind": None, "floors": [1]}),
    ],
)  # fmt: skip
def test_a_reply_is_made_to_fit_the_model(engine, tmp_path, reply, filled):
    with Library(tmp_path / "library", **engine(reply)) as library:
        answer = library.ask("What does it say?", tmp_path / "lease.md", schema=Lease)
    assert answer.filled == {"floors": [], **filled}
    assert Lease.model_validate(answer.filled)
    assert [each.meaning for each in answer.values] == [None] * len(answer.values)
    for each in answer.values:
        assert answer.citations[each.citation - 1].quote in TEXT


async def test_a_reader_that_fails_is_no_null(engine, tmp_path):
    how = engine("no object")
    async with Engine(library=tmp_path / "library", **how) as opened:
        with pytest.raises(ModelError, match="gives no valid"):
            await opened.ask("What does it say?", [tmp_path / "lease.md"], schema=Lease)


async def test_every_value_is_searched_for(engine, tmp_path):
    for n in range(30):
        (tmp_path / f"{n}.md").write_text(f"# Note {n}\n\nA lease of a flat, number {n}.\n")
    (tmp_path / "pets.md").write_text("# House rules\n\nPets are never welcome.\n")
    how = engine({"rent": {}, "pets": quoted("Pets are never welcome", False)})
    async with Engine(library=tmp_path / "library", **how) as opened:
        answer = await opened.ask(
            "What are the terms?", [tmp_path], schema=Lease, strategy="retrieve-read",
            parameters=["k=1"],
        )  # fmt: skip
    assert answer.filled["pets"] is False
    assert any(each.reason.endswith("of the search for /pets") for each in answer.evidence)


def test_null_is_not_offered_for_a_whole_value_but_taken():
    """A small model that may write null for the first value writes it for all."""
    shape = Shape({"properties": {"rent": {"type": "number"}, "terms": {"items": {}}}})
    offered = shape.reply.model_json_schema()
    assert not any("anyOf" in each for each in offered["properties"].values())
    reply = shape.reply.model_validate_json('{"rent": null, "terms": null}')
    assert reply == shape.reply()
