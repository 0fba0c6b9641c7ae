"""The text of an answer while its tokens come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

_SEEN = 6  # tokens that the next one is read with


class Written:
    """Text of tokens, as far as it is certain: `shown` is what `add` and `close` gave, joined.

    Held back are the bytes of a character that is not whole yet, and what may become a string
    that ends the text.
    """

    def __init__(self, tokenizer: Any, before: Sequence[int], stop: Iterable[str]) -> None:
        self.shown = ""
        self.stopped = False
        self._tokenizer = tokenizer
        self._stop = [string for string in stop if string]
        self._held = ""
        # A token is read with those before it: SentencePiece drops the first blank of a text.
        self._ids = list(before)[-_SEEN:]
        self._known = self._decode()

    def add(self, token: int) -> str:
        """What is certain now that was not before."""
        self._ids.append(token)
        text = self._decode()
        if text.endswith("\ufffd"):
            return ""
        fresh = text[len(self._known) :]
        self._ids = self._ids[-_SEEN:]
        self._known = self._decode()
        return self._certain(self._held + fresh)

    def close(self) -> str:
        """What was held back and is text after all. A character cut in the middle is not."""
        if self.stopped:
            return ""
        rest = self._decode()[len(self._known) :].rstrip("\ufffd")
        certain = self._certain(self._held + rest)
        rest, self._held = self._held, ""
        self.shown += rest
        return certain + rest

    def _certain(self, text: str) -> str:
        found = [(start + len(s), start) for s in self._stop if (start := text.find(s)) >= 0]
        if found:
            self.stopped = True
            certain, self._held = text[: min(found)[1]], ""  # by which is complete first
        else:
            keep = max((_overlap(text, string) for string in self._stop), default=0)
            certain, self._held = text[: len(text) - keep], text[len(text) - keep :]
        self.shown += certain
        return certain

    def _decode(self) -> str:
        return str(self._tokenizer.decode(self._ids, skip_special_tokens=True))


def _overlap(text: str, string: str) -> int:
    """How many of the last characters of a text are the first of a string, though not all."""
    lengths = range(min(len(text), len(string) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(string[:length])), 0)
