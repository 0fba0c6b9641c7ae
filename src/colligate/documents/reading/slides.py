"""Presentations: one section and one page for each slide."""

from __future__ import annotations

import re

from colligate.documents.document import Page

# A character of the private use area, which kreuzberg neither escapes nor reads as Markdown.
MARKER = "\n\n\ue000{page_num}\ue000\n\n"
_MARK = re.compile(r"\n*\ue000(\d+)\ue000\n*")
_HEADING = re.compile(r"#{1,6} \S")


def slide_sections(marked: str) -> tuple[str, tuple[Page, ...]]:
    """The Markdown without marks, each slide under a heading, and where each slide stands."""
    _, *parts = _MARK.split(marked)
    text, pages = "", []
    for number, content in zip(map(int, parts[::2]), parts[1::2], strict=True):
        start = len(text)
        if not _HEADING.match(content):
            text += f"## Slide {number}\n\n"
        text += content.strip("\n") + "\n\n"
        pages.append(Page(number, start, len(text)))
    return text, tuple(pages)
