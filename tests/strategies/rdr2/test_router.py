import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.strategies.rdr2.router import parse_enclosed_router_reply, parse_router_reply
from colligate.strategies.rdr2.tree import build_structure_tree, build_subtree
from support.documents import make

PARK = """# Park

A park near the lake.

## History

It opened in 1961.

The Titan was added in 2001, and is the tallest coaster of the park.

### Records

The tower is 400 feet high.

## Rides

There are forty rides.
"""
# -1 Park, 0 Introduction, 1 A park, 2 History, 3 It opened, 4 The Titan, 5 Records, 6 The tower,
# 7 Rides, 8 There are forty rides.
TREE = build_structure_tree(make(PARK, "Park"))
HISTORY = build_subtree(TREE, [3])  # shows 3 and 4; 5 and 7 are collapsed headings


def test_actions_are_read_and_nothing_is_left_over():
    made = parse_router_reply("[ANSWER] 3: It opened\n[EXPAND] 7: ==Rides==", HISTORY)
    assert (made.answers, made.expansions) == ((3,), (7,))
    assert (made.rejected, made.dropped, made.refused) == ((), (), False)
    assert not made.collapsed


@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        ("[ANSWER] 3, 4", (3, 4)),  # the paper's Appendix D
        ("[ANSWER] 3 and 4: both", (3, 4)),
        ("[answer] 3 It opened", (3,)),
        ("ANSWER 3: It opened", (3,)),
        ("- [ANSWER] 3: It opened", (3,)),
        ("[ANSWER]: 3", (3,)),
        ("[ANSWER] id: 3", (3,)),
        ("[ANSWER] [3]", (3,)),
        ("[ANSWER] 3.", (3,)),
        ("[ANSWER] 3: It opened\n[ANSWER] 3: It opened", (3,)),
        ("[ANSWER] 3: in 4, 1961", (3,)),  # what follows the colon is the node's text
        ("[ANSWER] It opened in", ()),
        ("[ANSWER] 3: Something that no node says", (3,)),  # the id counts
        ("[ANSWER] 3.5 million people", ()),
        ("[ANSWER] 3-4", (3, 4)),
        ("[ANSWER] 3-1961", (3,)),  # no range of what is shown
        ("Answer: it opened in 1961", ()),
        ("[ANSWER] 3: He cannot answer for it", (3,)),  # a paragraph with these words
    ],
)
def test_what_is_accepted_of_tagged_lines(reply, answers):
    assert parse_router_reply(reply, HISTORY).answers == answers


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        ("[ANSWER] 2: ==History==", "only a paragraph answers"),
        ("[EXPAND] 3: It opened", "only a heading expands"),
        ("[EXPAND] 2: ==History==", "paragraphs under this one are shown"),
        ("[EXPAND] -1: Park", "paragraphs under this one are shown"),
        ("[ANSWER] 8: There are", "no such node is shown"),
        ("[ANSWER] 99: x", "no such node is shown"),
    ],
)
def test_what_breaks_a_rule_is_rejected_with_the_rule(reply, why):
    made = parse_router_reply(reply, HISTORY)
    assert made.actions == ()
    (rejected,) = made.rejected
    assert why in rejected.why
    assert not made.collapsed


@pytest.mark.parametrize(
    "reply", ["[ANSWER] 3: It opened\nI cannot answer the rest.", "[REFUSE]", "Cannot answer"]
)
def test_a_refusal_overrides_everything_else(reply):
    made = parse_router_reply(reply, HISTORY)
    assert made.refused
    assert made.actions == ()
    assert made.verdict == "refused"


LINES = st.lists(
    st.builds("{} {}: x".format, st.sampled_from(["[ANSWER]", "[EXPAND]"]), st.integers(-3, 12)),
    max_size=9,
).map("\n".join)


@pytest.mark.parametrize("parse", [parse_router_reply, parse_enclosed_router_reply])
@given(reply=st.text(max_size=300) | LINES)
def test_no_reply_breaks_the_rules(parse, reply):
    made = parse(reply, HISTORY)
    for node in made.answers:
        assert node in HISTORY.visible
        assert not TREE.nodes[node].structure
    for node in made.expansions:
        assert TREE.nodes[node].structure
        assert HISTORY.visible.isdisjoint(TREE.content_under(node))


# The paper's enclosed lines


@pytest.mark.parametrize(
    ("reply", "answers", "expansions"),
    [
        ("<answer>\n3: It opened\n4: A Titan\n</answer>\n<expand>\n7: x\n</expand>", (3, 4), (7,)),
        ("<answer>3: It opened</answer>", (3,), ()),
        ("<answer>\n- 3: It opened\n* 4\n</answer><expand>- 7</expand>", (3, 4), (7,)),
        ("<expand>7: ==Rides==", (), (7,)),  # cut off
        ("<answer>3: It opened<expand>7: ==Rides==</expand>", (3,), (7,)),  # not closed
        ("[ANSWER] 3: It opened", (3,), ()),  # the other form
    ],
)
def test_what_is_accepted_of_enclosed_lines(reply, answers, expansions):
    made = parse_enclosed_router_reply(reply, HISTORY)
    assert (made.answers, made.expansions) == (answers, expansions)
