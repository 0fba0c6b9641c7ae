"""Marks of control tokens in a text become letters, and nothing else changes."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.models.base import blunt, encodable, marks

CONTROLS = [
    "<|im_start|>",
    "<|im_end|>",
    "<s>",
    "</s>",
    "<end_of_turn>",
    "<unused12>",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "[INST]",
    "[/INST]",
    "<|start header id|>",
]
ORDINARY = ["<b>", "</p>", '<a href="x">', "[1]", "[x](y)", "1 < 2 > 0", "<|", "|>", "\n", "a"]
texts = st.lists(st.sampled_from([*CONTROLS, *ORDINARY, "<", ">", "[", "]", "\U0001f642"])).map(
    "".join
)


@pytest.mark.parametrize("control", CONTROLS)
def test_a_control_token_is_found_wherever_it_stands(control):
    for text in (control, f"a{control}b", f"<{control}>", f"[a {control}]", f"<x{control * 2}"):
        safe = blunt(text, [control])
        assert control not in safe
        assert len(safe) == len(text)
        assert sum(a != b for a, b in zip(text, safe, strict=True)) == text.count(control)


@given(texts)
def test_what_is_left_has_no_control_token_and_the_same_places(text):
    safe = blunt(text, CONTROLS)
    assert not any(control in safe for control in CONTROLS)
    assert len(safe) == len(text)
    assert blunt(safe, CONTROLS) == safe
    assert all(a in "<[" for a, b in zip(text, safe, strict=True) if a != b)


@given(texts)
def test_the_marks_of_a_text_are_all_there(text):
    found = marks(text)
    assert set(found) >= {control for control in CONTROLS if control in text}
    assert all(mark in text for mark in found)


def test_only_what_is_named_changes():
    html = "<s>struck</s> and <b>bold</b> [INST]"
    assert blunt(html, ["</s>"]) == "<s>struck\u2039/s> and <b>bold</b> [INST]"


def test_marks_end_with_their_line_and_have_bounds():
    assert marks("<a\nb> [] <> <" + "x" * 200 + ">") == []


@pytest.mark.parametrize("first", "<[]>|")
def test_no_normalisation_undoes_it(first):
    safe = blunt(f"{first}x", [f"{first}x"])
    for form in ("NFC", "NFKC", "NFD", "NFKD"):
        assert first not in unicodedata.normalize(form, safe)


def test_a_control_token_that_begins_with_a_letter():
    assert blunt("an EOS here", ["EOS"]) == "an \ufffdOS here"


@given(st.text(st.characters(exclude_categories=())))
def test_what_no_encoding_has_is_replaced_in_its_place(text):
    sent = encodable(text)
    assert len(sent.encode()) >= len(sent) == len(text)
