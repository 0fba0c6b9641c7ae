"""Lines of Hebrew, Arabic and other scripts that run from right to left.

A PDF has the words where they stand. From the right, each follows the one before; words in Latin
letters keep their own order, what is left of a number stands after it, and brackets are mirrored.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby

from liteparse import TextItem, WordBox

_LETTER = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_MIRRORED = str.maketrans("()[]{}<>", ")(][}{><")
_MARKED = re.compile(r"""([.,:;!?()\[\]{}"']*)(.*?)([.,:;!?()\[\]{}"']*)""", re.DOTALL)
_OPENING = re.compile(r" ?([(\[{]) ")
_CLOSING = re.compile(r" ([.,:;!?)\]}])")


def is_rtl(text: str) -> bool:
    """Report whether most letters of a text run from right to left."""
    return not text.isascii() and 2 * len(_LETTER.findall(text)) > sum(map(str.isalpha, text))


def order_words(items: Sequence[TextItem]) -> str:
    """Return the words of a line that runs from right to left in the order they are read."""
    words = sorted((word for item in items for word in item.words), key=lambda word: -word.x)
    parts: list[str] = []
    for is_latin, run in groupby(words, _is_latin):
        texts = [word.text for word in run]
        parts += texts[::-1] if is_latin else map(_turn, texts)
    return _CLOSING.sub(r"\1", _OPENING.sub(r" \1", " ".join(parts)))


def _is_latin(word: WordBox) -> bool:
    return any(map(str.isalpha, word.text)) and not _LETTER.search(word.text)


def _turn(word: str) -> str:
    if _LETTER.search(word):
        return word.translate(_MIRRORED)
    found = _MARKED.fullmatch(word)
    left, core, right = found.groups() if found else ("", word, "")
    right = right.translate(_MIRRORED)
    opening = right.lstrip(".,:;!?)]}")
    return opening + core + right[: len(right) - len(opening)] + left[::-1].translate(_MIRRORED)
