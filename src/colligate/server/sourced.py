"""An answer as one text that other programs show, most of them as Markdown.

Documents and models wrote what stands in it, so nothing of it may load an image or become HTML:
an address a model was led to write would tell its server what the documents say.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# What begins an image, or a tag, a comment or a link in angle brackets; and what would say where
# the marks lead (`[1]: address`).
# An odd number of backslashes before it has made it text already.
_ACTIVE = re.compile(r"(\\*)(?:!(?=\[)|<(?=[A-Za-z/!?])|\](?=:))")
# In a title, whatever begins a link or code as well.
_MARKS = re.compile(r"[\\`\[\]<]")


@dataclass(frozen=True)
class Sourced:
    """`text` is the answer and below it its sources; `shifts` are where backslashes went in.

    Places count in code points.
    """

    text: str
    shifts: tuple[int, ...]

    def place(self, span: tuple[int, int]) -> tuple[int, int]:
        """Where a stretch of the answer stands in `text`."""
        start, end = span
        return start + bisect_left(self.shifts, start), end + bisect_left(self.shifts, end)


def sourced(answer: Mapping[str, Any]) -> Sourced:
    """The text of an answer (the object of `ask --json`), and the list of what its marks mean."""
    said: str = answer["answer"]
    active = (match for match in _ACTIVE.finditer(said) if len(match[1]) % 2 == 0)
    shifts = tuple(match.end(1) for match in active)
    text = "\\".join(said[start:end] for start, end in pairwise((0, *shifts, len(said))))
    if answer["citations"]:
        lines = [f"[{n}] {_line(each)}" for n, each in enumerate(answer["citations"], 1)]
        # Two blanks at a line's end keep Markdown from joining it with the next.
        text += "\n\nSources:\n\n" + "  \n".join(lines)
    return Sourced(text, shifts)


def place_of(citation: Mapping[str, Any]) -> str:
    """Title, heading path and page in one line, as they stand in the document."""
    headings = [heading for heading in citation["section"] if heading != citation["title"]]
    where = " › ".join([citation["title"], *headings])
    page = "" if citation["page"] is None else f", page {citation['page']}"
    return " ".join((where + page).split())


def _line(citation: Mapping[str, Any]) -> str:
    return _MARKS.sub(r"\\\g<0>", place_of(citation))
