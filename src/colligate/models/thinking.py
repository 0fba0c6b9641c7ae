"""The one place where a model's thinking is parted from its answer.

Reasoning models write `<think> ... </think>` before (or within) what they mean to say. Some chat
templates open the block themselves, so that only `</think>` is seen; some answers are cut
before it closes. All of these are thinking; none of it is shown or parsed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar

from colligate.concurrency import Threads
from colligate.models.base import OnToken

_TAG = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_TAGS = ("<think>", "</think>", "<thinking>", "</thinking>")


def split_thinking(text: str) -> tuple[str, str]:
    """The text without its thinking, and the thinking. Text without tags comes back unchanged.

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
    """Holds thinking back from a stream: `feed` each piece, show what it returns, `close` last.

    Joined, what it returns is what `split_thinking` says of the whole, however the text was cut
    into pieces. One case cannot be known while streaming: a block that the chat
    template opened unseen; say `inside=True` for a model that is known to do so.
    """

    def __init__(self, *, inside: bool = False) -> None:
        self._inside = inside
        self._held = ""  # may be the beginning of a tag
        self._blank = ""  # leading whitespace, shown only if no thinking comes first
        self._shown = False
        self._thinking: list[str] = []

    @property
    def thinking(self) -> str:
        """What was held back so far, blocks joined by blank lines."""
        return "\n\n".join(block for part in self._thinking if (block := part.strip()))

    def feed(self, piece: str) -> str:
        """The part of the stream that may be shown now; often shorter or longer than `piece`."""
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
        """What was still held back and turned out to be no tag."""
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
    """Where a tag that is not yet complete may begin; the text's length when none does."""
    at = text.rfind("<", start)
    ending = text[at:].lower()
    return at if at >= 0 and any(tag.startswith(ending) for tag in _TAGS) else len(text)


# From a thread that generates text to the event loop that waits for it.

T = TypeVar("T")


async def streamed(
    threads: Threads,
    generate: Callable[[Callable[[str], None]], T],
    halt: Callable[[], None],
    on_token: OnToken | None,
    *,
    inside_thinking: bool = False,
) -> T:
    """What `generate` returns; the pieces it hands over reach `on_token` in this event loop.

    Thinking is held back. `halt` is called when nobody waits any more: the caller was cancelled,
    `on_token` raised, or the event loop was closed.
    """
    loop = asyncio.get_running_loop()
    pieces: asyncio.Queue[str | None] = asyncio.Queue()

    def forward(piece: str) -> None:
        try:
            loop.call_soon_threadsafe(pieces.put_nowait, piece)
        except RuntimeError:  # The loop was closed.
            halt()

    answer = threads.run(lambda: generate(forward))
    answer.add_done_callback(lambda _: pieces.put_nowait(None))
    try:
        visible = ThinkingFilter(inside=inside_thinking)
        while (piece := await pieces.get()) is not None:
            shown = visible.feed(piece)
            if on_token and shown:
                on_token(shown)
        if on_token and (shown := visible.close()):
            on_token(shown)
        return await answer
    finally:
        halt()
        answer.cancel()  # Does nothing to one that is done.
