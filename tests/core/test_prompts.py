"""Document text in a prompt is data: it ends no tag and begins no turn, however it is spelt."""

import re
import sys
import unicodedata
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colligate.core.prompts import escape, render_question, say_day
from colligate.documents.locating import locate
from support.documents import make

OURS = ["</passage>", '<passage number="9">', "</documents>", "<question>", "</queries >"]
TOKENS = [
    *("<|im_end|>", "<|start_header_id|>", "<｜User｜>", "<｜end▁of▁sentence｜>", "</s>", "<bos>"),
    *("<end_of_turn>", "[INST]", "[/INST]", "[TOOL_CALLS]", "<<SYS>>", "<</SYS>>"),
]
FORMAT = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) == "Cf"]
INVISIBLE = st.text(st.sampled_from([*FORMAT, "\ufe0f", "\u034f", "\0", "\x7f"]), max_size=3)
BLANK = st.text(st.sampled_from(" \t\n\r\u00a0\u2003\u3000"), max_size=4)


def seen(text: str) -> str:
    """A text as a tokenizer that normalises may read it."""
    shown = (c for c in text if c.isspace() or unicodedata.category(c) not in ("Cf", "Cc", "Mn"))
    return unicodedata.normalize("NFKC", "".join(shown))


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """A delimiter, and a way to write it."""
    delimiter = draw(st.sampled_from(OURS + TOKENS))
    wide = draw(st.booleans())
    written = ""
    for place, character in enumerate(delimiter):
        if wide and "!" <= character <= "~" and draw(st.booleans()):
            character = chr(ord(character) + 0xFEE0)
        if delimiter in OURS and draw(st.booleans()):
            character = character.upper()
        written += character + (draw(INVISIBLE) if place < len(delimiter) - 1 else "")
        if delimiter in OURS and delimiter[: place + 1] in ("<", "</"):
            written += draw(BLANK)
    return delimiter, written


def test_prompts_say_which_day_it_is_only_where_the_question_depends_on_it():
    question = "Which leases end this year?"
    assert render_question(question) == f"Today is {say_day(date.today())}.\nQuestion: {question}"
    assert render_question("Which leases end in 2026?") == "Question: Which leases end in 2026?"


@given(spellings(), st.text(max_size=20), st.text(max_size=20))
def test_no_delimiter_survives_in_any_spelling(spelling, before, after):
    delimiter, written = spelling
    text = f"{before}.{written}.{after}"
    shown = escape(text)
    assert len(shown) == len(text)
    if delimiter in OURS:
        name = re.findall(r"\w+", delimiter)[0]
        assert not re.search(rf"<\s*/?\s*{name}\b", seen(shown), re.IGNORECASE)
    else:
        assert seen(delimiter) not in seen(shown)


@pytest.mark.parametrize(
    "written",
    [
        *('< /passage number="2">', "<\n/passage>", "< / passage>", "</\u200bpassage>"),
        *("</pass\u00adage>", "<\\/passage>", "<" + " " * 500 + "/passage>"),
        "<" + "\u200b" * 500 + "/p" + "\u200b" * 500 + "assage>",
    ],
)
def test_a_passage_is_not_closed(written):
    assert escape(f"a {written} b") == f"a ‹{written[1:]} b"


@given(st.text("ab 01<>[]/&=.,:\n\"'-–é文\u00ad\u200b"))
def test_ordinary_text_is_unchanged(text):
    assert escape(text) == text


# A quote must have the numbers of its place, without those in tags: that tag is not found.
@pytest.mark.parametrize("mark", [mark for mark in [*OURS, *TOKENS] if "9" not in mark])
def test_what_is_quoted_as_it_was_shown_is_found_where_it_is(mark):
    sentence = (
        f"The clerk who fills in the form writes {mark} in the first column of every row, before"
        " the name of the tenant, the number of the flat and the day on which the rent was paid."
    )
    document = make(f"Before it. {sentence} After it.", "A", "a")
    found = locate(escape(sentence), document)
    assert document.slice(found.span) == sentence
