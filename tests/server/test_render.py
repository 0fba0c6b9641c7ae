"""Answers and progress as text for other programs: nothing that a document wrote is active."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from colligate.server.render import render_answer, render_event

MARKDOWN = MarkdownIt("commonmark")
PIECES = st.sampled_from(
    [*"![]()<>\\/`*_&;:#-= \n1?a\"'", "![x](u)", "<img src=u>", "[1]: u\n", "<!--", "```\n", "[1]"]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)


def answer(text: str, *citations: dict[str, Any]) -> dict[str, Any]:
    return {"answer": text, "citations": list(citations)}


def citation(title: str, section: list[str], page: int | None = None) -> dict[str, Any]:
    return {"title": title, "section": section, "page": page}


def tokens(text: str) -> Iterator[Token]:
    for token in MARKDOWN.parse(text):
        yield token
        yield from token.children or []


@given(TEXTS, TEXTS.filter(str.strip), TEXTS)
def test_no_image_and_no_html_whatever_is_written(text, title, heading):
    rendered = render_answer(answer(text, citation(title, [heading]))).text
    assert not {"image", "html_inline", "html_block"} & {token.type for token in tokens(rendered)}


@given(TEXTS, st.data())
def test_a_place_in_the_answer_is_found_in_the_text(text, data):
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    rendered = render_answer(answer(text))
    begin, stop = rendered.locate((start, end))
    plain = [char for at, char in enumerate(rendered.text) if at not in inserted(rendered.shifts)]
    assert "".join(plain) == text
    assert rendered.text[begin:stop].replace("\\", "") == text[start:end].replace("\\", "")


def inserted(shifts: tuple[int, ...]) -> set[int]:
    return {at + number for number, at in enumerate(shifts)}


def test_plain_answers_stay_as_they_are():
    text = "Rent is < 900 € [1] (see *House rules*), [uncited] in 2 of 3 cases!"
    assert render_answer(answer(text)).text == text


def test_sources_say_title_headings_and_page():
    first = citation("Lease", ["Lease", "Rent", "Due\ndate"], 4)
    rendered = render_answer(answer("Due. [1] [2]", first, citation("Annex [A]", []))).text
    assert rendered == "Due. [1] [2]\n\nSources:\n\n[1] Lease › Rent › Due date, page 4  \n" + (
        r"[2] Annex \[A\]"
    )


def test_link_definitions_are_text():
    rendered = render_answer(answer("Yes. [1]\n\n[1]: http://example.org")).text
    assert "link_open" not in {token.type for token in tokens(rendered)}


@pytest.mark.parametrize(
    "event",
    [
        {"event": "asking", "line": "asking a\r\n\r\ndata: {}"},
        {"event": "noted", "line": "one\u2028two\nthree"},
        {"event": "queued", "place": 2},
        {"event": "another\npackage's"},
    ],
)
def test_an_event_is_one_line(event):
    assert len(render_event(event).splitlines()) == 1
