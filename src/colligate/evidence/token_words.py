"""The words that tokens make up."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from colligate.token_estimate import CJK

_UNSPACED = re.compile(f"[{CJK}]")


def words_of(text: str, tokens: Sequence[tuple[int, int]]) -> list[list[int]]:
    """The places of the tokens of each word, given their half-open ranges of the text, in order.

    A word begins after a blank; a mark of punctuation is one, and so is each token of a script
    without blanks. Tokens without characters belong to the word before.
    """
    words: list[list[int]] = []
    for place, (start, end) in enumerate(tokens):
        bare = text[start:end].strip()
        first = end - len(text[start:end].lstrip())
        begins = bool(bare) and (
            first == 0
            or text[first - 1].isspace()
            or all(character in string.punctuation for character in bare)
            or _UNSPACED.match(bare) is not None
        )
        if begins or not words:
            words.append([place])
        else:
            words[-1].append(place)
    return words
