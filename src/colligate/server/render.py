"""What other programs show of a run: its answer as Markdown, its progress in one line.

Documents and models wrote the texts, so nothing in them may load an image or become HTML: an
address that a model was led to write would tell its server what the documents say.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import Any

# The start of an image, of a tag, comment or link in angle brackets, and of a link definition
# (`[1]: address`). After an odd number of backslashes it is text already.
_ACTIVE = re.compile(r"(\\*)(?:!(?=\[)|<(?=[A-Za-z/!?])|\](?=:))")
# In a title, the start of a link or of code as well.
_MARKS = re.compile(r"[\\`\[\]<]")


@dataclass(frozen=True)
class RenderedAnswer:
    """The answer with its sources below; backslashes were inserted at `shifts` (code points)."""

    text: str
    shifts: tuple[int, ...]

    def locate(self, span: tuple[int, int]) -> tuple[int, int]:
        """Return where a span of the answer is in `text`."""
        start, end = span
        return start + bisect_left(self.shifts, start), end + bisect_left(self.shifts, end)


def render_answer(answer: Mapping[str, Any]) -> RenderedAnswer:
    """Escape an answer (the object of `ask --json`) and list its sources below."""
    raw: str = answer["answer"]
    active = (match for match in _ACTIVE.finditer(raw) if len(match[1]) % 2 == 0)
    shifts = tuple(match.end(1) for match in active)
    text = "\\".join(raw[start:end] for start, end in pairwise((0, *shifts, len(raw))))
    if answer["citations"]:
        lines = [f"[{n}] {_source_line(each)}" for n, each in enumerate(answer["citations"], 1)]
        # Two blanks at the end of a line keep Markdown from joining it with the next.
        text += "\n\nSources:\n\n" + "  \n".join(lines)
    return RenderedAnswer(text, shifts)


def describe_place(citation: Mapping[str, Any]) -> str:
    """Return the title, the headings, the page and the file of a citation in one line."""
    headings = [heading for heading in citation["section"] if heading != citation["title"]]
    where = " › ".join([citation["title"], *headings])
    page = "" if citation["page"] is None else f", page {citation['page']}"
    name = PurePath(citation.get("source", "")).name
    return " ".join((where + page + (f" ({name})" if name else "")).split())


def _source_line(citation: Mapping[str, Any]) -> str:
    return _MARKS.sub(r"\\\g<0>", describe_place(citation))


def render_event(event: Mapping[str, Any]) -> str:
    """Return the line of an event that `Event.to_json` wrote, or the event's name without one."""
    if event.get("event") == "queued":
        return f"waiting in the queue, at place {event.get('place')}"
    # A line break would end a comment in an event stream; half a surrogate pair cannot be sent.
    line = " ".join(str(event.get("line") or event.get("event", "")).split())
    return line.encode(errors="replace").decode()
