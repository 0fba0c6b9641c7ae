"""Separate a model's thinking from its answer.

Reasoning models write `<think> ... </think>` before or within their answer. Some chat templates
open the block themselves, so that the answer contains only `</think>`; some answers are cut before
the block ends. In all of these cases thinking is neither shown nor parsed.
"""

from __future__ import annotations

import re

_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_TAGS = ("<think>", "</think>", "<thinking>", "</thinking>")


def split_thinking(text: str) -> tuple[str, str]:
    """Split a text into the answer and the thinking. Text without tags is returned unchanged.

    >>> split_thinking("<think>two and two</think>\\nFour.")
    ('Four.', 'two and two')
    >>> split_thinking("two and two</think>Four.")
    ('Four.', 'two and two')
    >>> split_thinking("<think>two and")
    ('', 'two and')
    """
    first = _TAG.search(text)
    thinking = ThinkingFilter(inside=first is not None and first[1] == "/")
    visible = thinking.feed(text) + thinking.close()
    return visible, thinking.thinking


class ThinkingFilter:
    """Removes thinking from a stream: `feed` each piece, then `close`; show the returned texts.

    Joined, they are the answer that `split_thinking` returns for the whole text. A block that the
    chat template opened cannot be detected while streaming: pass `inside=True` then.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._inside = inside
        self._held = ""  # may be the beginning of a tag
        self._blank = ""  # leading whitespace, shown only if no thinking comes first
        self._shown = False
        self._thinking: list[str] = []

    @property
    def thinking(self) -> str:
        """The thinking so far, blocks joined by blank lines."""
        return "\n\n".join(block for part in self._thinking if (block := part.strip()))

    def feed(self, piece: str) -> str:
        """Return the part that may be shown now; it may be shorter or longer than `piece`."""
        text, self._held = self._held + piece, ""
        visible = []
        at = 0
        for tag in _TAG.finditer(text):
            visible.append(self._pass(text[at : tag.start()]))
            self._inside = tag[1] == ""
            self._thinking.append("")
            if not self._shown:
                self._blank = ""
            at = tag.end()
        cut = _possible_tag(text, at)
        self._held = text[cut:]
        visible.append(self._pass(text[at:cut]))
        return "".join(visible)

    def close(self) -> str:
        """Return the text that was held back and is not a tag."""
        held, self._held = self._held, ""
        blank = "" if self._thinking else self._blank
        self._blank = ""
        return blank + self._pass(held) if held or blank else ""

    def _pass(self, text: str) -> str:
        if self._inside:
            if not self._thinking:
                self._thinking.append("")
            self._thinking[-1] += text
            return ""
        if self._shown:
            return text
        text = self._blank + text
        if not text.strip():
            self._blank = text
            return ""
        self._shown, self._blank = True, ""
        return text.lstrip() if self._thinking else text


def _possible_tag(text: str, start: int) -> int:
    """Return where an incomplete tag may begin; the length of the text if none does."""
    at = text.rfind("<", start)
    ending = text[at:].lower()
    return at if at >= 0 and any(tag.startswith(ending) for tag in _TAGS) else len(text)
