"""What DualRAG's prompts show, and how the replies are read."""

import pytest
from pydantic import ValidationError

from colligate.core.prompts import Reasoning, parse_sentence
from colligate.documents import Passage, Span
from colligate.strategies.dualrag.knowledge import ELSE
from colligate.strategies.dualrag.prompts import (
    Summary,
    Wanted,
    clean_entities,
    summarizer_messages,
)

# Reasoner


def test_a_reply_without_a_verdict_searches_on():
    assert Reasoning.model_validate({"thought": "So."}).need_retrieve
    assert "need_retrieve" in Reasoning.model_json_schema()["required"]


@pytest.mark.parametrize(
    ("reply", "thought", "need"),
    [
        ("Lyon is in France. It has trams.", "Lyon is in France.", True),
        ("So the answer is: 42\nand more", "So the answer is: 42", False),
        ("SO THE ANSWER IS 3.5 metres.", "SO THE ANSWER IS 3.5 metres.", False),
        ("It is by J. Lee Thompson. It is old.", "It is by J. Lee Thompson.", True),
        ("2. The U.S. Senate passed No. 5 in 1921.", "The U.S. Senate passed No. 5 in 1921.", True),
        ("So the answer is: Dr. Lind.", "So the answer is: Dr. Lind.", False),
        ("", "", True),
    ],
)
def test_a_sentence_is_a_thought_and_the_marker_ends(reply, thought, need):
    assert parse_sentence(reply) == Reasoning(thought=thought, need_retrieve=need)


# Entity Identifier


def read(*rows):
    return clean_entities([Wanted.model_validate(row) for row in rows], "the thought")


def test_an_entity_named_twice_has_the_queries_of_both():
    rows = [{"entity": "Mill", "keywords": ["a"]}, {"entity": "Mill", "keywords": ["b", "a"]}]
    assert read(*rows) == [("Mill", ("a", "b"))]


@pytest.mark.parametrize(
    ("row", "found"),
    [
        ({"entity": "Mill", "keywords": "owner of mills"}, ("Mill", ("owner of mills",))),
        ({"entity": "Mill"}, ("Mill", ("Mill",))),
        ({"entity": "", "keywords": ["its owner"]}, ("else", ("its owner",))),
        ({"entity": " ", "keywords": [" "]}, ("else", ("the thought",))),
    ],
)
def test_half_a_reply_is_of_use(row, found):
    assert read(row) == [found]


# Knowledge Summarizer

PASSAGE = Passage(Span("d", 0, 9), "The mill.", "Mills")


def prompt(entity="Mill", queries=("owner", "age"), thoughts=("T.",)):
    messages = summarizer_messages("Who owns it?", thoughts, (entity, queries), [PASSAGE])
    return messages[-1].content


def test_the_prompt_has_passages_question_thoughts_entity_and_queries_in_order():
    content = prompt()
    parts = ["The mill.", "Question: Who owns it?", "1. T.", "Entity: <entity>Mill</entity>"]
    places = [content.index(part) for part in [*parts, "owner; age"]]
    assert places == sorted(places)


def test_what_belongs_to_no_entity_is_asked_for_without_one():
    assert "Entity:" not in prompt(ELSE)
    assert "owner; age" in prompt(ELSE)


def test_no_statement_is_a_summary_and_no_list_is_none():
    assert Summary.model_validate({"statements": []}).statements == []
    with pytest.raises(ValidationError):
        Summary.model_validate({})
