import pytest

from colligate.core.prompts import Reasoning, parse_sentence
from colligate.strategies.dualrag.prompts import (
    reasoner_messages,
    sentence_messages,
)


@pytest.mark.parametrize("build", [reasoner_messages, sentence_messages])
def test_the_prompt_shows_question_thoughts_and_outline_in_order(build):
    content = build("Who?", "#### A\n\nA is b.", ["First.", "Second."])[-1].content
    places = [content.index(text) for text in ("Question: Who?", "1. First", "2. Second", "#### A")]
    assert places == sorted(places)
    assert content.endswith("Question: Who?")
    assert "<thoughts>" not in build("Who?", "", [])[-1].content


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
