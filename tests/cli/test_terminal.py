"""No text drives the terminal; what is printed of an answer."""

import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from colligate import Answer, Citation, Span
from colligate.cli.display import escape_controls, show_answer, to_one_line
from colligate.core.answer import Verdict

# Any code point, those that do harm as often as the rest.
harmful = st.sampled_from("\x00\x07\x08\x1b\x7f\x85\x9b\x9d\u202e\u2066\ud800\r")
texts = st.text(st.one_of(st.characters(), harmful))


@given(texts)
@example("\x1b]0;title\x07\x9b2J")
def test_visible_text_holds_nothing_a_terminal_obeys(text: str) -> None:
    shown = escape_controls(text)
    assert len(shown) == len(text)
    assert [c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t"] == []
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


@given(st.text(st.characters(exclude_categories=("Cc", "Cs", "Cf"))))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert escape_controls(text) == text


@given(texts)
def test_one_line_is_one_line(text: str) -> None:
    assert len(to_one_line(text).splitlines()) <= 1


def test_a_citation_whose_meaning_was_not_told_is_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told, untold = (
        Citation(
            Span("a-1", 0, 5), "Otter", "Otters", (), page, ((0, 5),), "quote", meaning=meaning
        )
        for page, meaning in ((3, Verdict.SUPPORTED), (4, Verdict.UNCLEAR))
    )
    show_answer(Answer("Who?", "auto", "Otter [1][2]", found=True, citations=(told, untold)))
    headings = [line for line in capsys.readouterr().out.splitlines() if "page" in line]
    assert headings == [
        "[1] Otters, page 3",
        "[2] Otters, page 4, worded differently, please check",
    ]
