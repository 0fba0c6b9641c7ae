import pytest

from colligate.strategies.longrefiner.method import (
    scope_messages,
    scope_of_odds,
    scope_of_reply,
)


@pytest.mark.parametrize(
    ("local", "global_", "scope"), [(0.9, 0.1, 0.1), (0.2, 0.2, 0.5), (0.0, 0.3, 1.0), (0, 0, 0.5)]
)
def test_the_scope_is_the_share_of_global(local, global_, scope):
    assert scope_of_odds({"Local": local, "Global": global_}) == pytest.approx(scope)


@pytest.mark.parametrize(
    ("reply", "scope"),
    [
        ("[Global]", 1.0),
        ("local", 0.0),
        ("[Local], not [Global]", 0.0),
        ("I do not know", None),
        ("", None),
    ],
)
def test_a_word_for_a_scope(reply, scope):
    assert scope_of_reply(reply) == scope


def test_the_question_comes_last_and_the_reply_begins_with_its_bracket():
    *shots, last = scope_messages(" Who signed? ")
    assert last.content == "Who signed?"
    assert {m.content for m in shots if m.role == "assistant"} == {"[Local]", "[Global]"}
    bare = scope_messages("Who signed?", bare=True)
    assert {m.content for m in bare if m.role == "assistant"} == {"Local", "Global"}
    assert all("[" not in m.content for m in bare)
