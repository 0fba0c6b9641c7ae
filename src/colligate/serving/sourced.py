r"""An answer as one text that other programs show, most of them as Markdown.

Documents and models wrote what stands in it, so nothing of it may load an image or become HTML:
an address a model was led to write would tell its server what the documents say.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from dataclasses import dataclass

from colligate.evidence.citing import Citation
from colligate.strategies.answer import Answer

# What begins an image, and what begins a tag, a comment or a link in angle brackets.
_ACTIVE = re.compile(r"!(?=\[)|<(?=[A-Za-z/!?])")
# In a title, whatever begins a link or code as well.
_MARKS = re.compile(r"[\\`\[\]<]")


@dataclass(frozen=True)
class Sourced:
    """`text` is the answer and below it its sources; `shifts` are where backslashes went in."""

    text: str
    shifts: tuple[int, ...]

    def place(self, span: tuple[int, int]) -> tuple[int, int]:
        """Where a stretch of `Answer.text` stands in `text`."""
        start, end = span
        return start + bisect_left(self.shifts, start), end + bisect_left(self.shifts, end)


def sourced(answer: Answer) -> Sourced:
    """The answer's text with its marks, and the list of what they stand for."""
    shifts = tuple(match.start() for match in _ACTIVE.finditer(answer.text))
    text = _ACTIVE.sub(r"\\\g<0>", answer.text)
    if answer.citations:
        lines = [f"[{n}] {_line(each)}" for n, each in enumerate(answer.citations, 1)]
        # Two blanks at a line's end keep Markdown from joining it with the next.
        text += "\n\nSources:\n\n" + "  \n".join(lines)
    return Sourced(text, shifts)


def place_of(citation: Citation) -> str:
    """Title, heading path and page in one line, as they stand in the document."""
    headings = [heading for heading in citation.section if heading != citation.title]
    where = " › ".join([citation.title, *headings])
    return " ".join((where if citation.page is None else f"{where}, page {citation.page}").split())


def _line(citation: Citation) -> str:
    return _MARKS.sub(r"\\\g<0>", place_of(citation))
