"""Thinking never reaches the reader, however it arrives."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colligate.models.thinking import ThinkingFilter, split_thinking

PARTS = st.lists(
    st.sampled_from(["<think>", "</think>", "<thinking>", "</thinking>", "<", "<th", " ", "\n"])
    | st.text(max_size=6),
    max_size=12,
)


@pytest.mark.parametrize(
    ("text", "visible", "thinking"),
    [
        ("plain", "plain", ""),
        ("  kept as it is \n", "  kept as it is \n", ""),
        ("<think>a</think>b", "b", "a"),
        ("\n<think>\na\n</think>\n\nb\n", "b\n", "a"),
        ("a\nmore</think>\nb", "b", "a\nmore"),
        ("<think>never closed", "", "never closed"),
        ("one <THINK>x</THINK>two<think>y</think> three", "one two three", "x\n\ny"),
        ("<think></think>b", "b", ""),
        ("1 < 2 and <thin air>", "1 < 2 and <thin air>", ""),
        ("cut at <thi", "cut at <thi", ""),
        ("", "", ""),
    ],
)
def test_split(text, visible, thinking):
    assert split_thinking(text) == (visible, thinking)


@settings(max_examples=200)
@given(PARTS, st.data())
def test_a_stream_shows_what_the_whole_shows(parts, data):
    text = "".join(parts)
    first = re.search(r"</?think(ing)?>", text)
    if first is not None and first[0].startswith("</"):
        text = "<think>" + text  # a block opened unseen is not known while streaming
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    stream = ThinkingFilter()
    shown = "".join(map(stream.feed, pieces)) + stream.close()
    assert (shown, stream.thinking) == split_thinking(text)


def test_a_block_the_template_opened():
    stream = ThinkingFilter(inside=True)
    shown = [stream.feed(piece) for piece in ("let me", " see</th", "ink>\n", "Four", ".")]
    assert shown == ["", "", "", "Four", "."]
    assert stream.thinking == "let me see"
