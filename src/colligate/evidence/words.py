"""The words that carry meaning, for comparing a claim with a text that should support it."""

from __future__ import annotations

import re
import unicodedata

# Words, numbers with their separators (1,234.5), and each CJK character by itself.
WORD = re.compile(r"[㐀-䶿一-鿿぀-ヿ]|\d+(?:[.,:/-]\d+)*|[^\W\d_㐀-䶿一-鿿぀-ヿ]+(?:['’][^\W\d_]+)?")

# Function words of a claim say nothing about its source. English only: in other languages
# they are common in any passage, so keeping them only makes the test a little milder.
_FUNCTION_WORDS_TEXT = """
a about above according after all also although an and any are as at be because been before being
between both but by can cannot could did do does doing down during each either every few for from
further had has have having he her here hers him his how however i if in into is it its itself
just may me might more most must my neither no nor not of off on once one only or other our out
over own per said same say says shall she should so some state stated states such than that the
their them then there therefore these they this those through to too under until up upon us very
via was we were what when where whether which while who whom whose why will with within without
would yes you your
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORDS_TEXT.split())

_COUNTED = """
zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen twenty
"""
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_COUNTED.split())} | {
    "thirty": "30",
    "forty": "40",
    "fifty": "50",
    "sixty": "60",
    "seventy": "70",
    "eighty": "80",
    "ninety": "90",
    "hundred": "100",
}


def content_words(text: str) -> list[str]:
    """The content words of a text in order, case-folded and roughly stemmed.

    >>> content_words("The licences terminate after thirty days.")
    ['licenc', 'terminat', '30', 'day']
    """
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    found = []
    for match in WORD.finditer(folded):
        word = match.group()
        word = _NUMBER_WORDS.get(word, word)
        if word not in _FUNCTION_WORDS:
            found.append(_stem(word))
    return found


def is_number(word: str) -> bool:
    """Whether a content word is a number."""
    return word[:1].isdigit()


def _stem(word: str) -> str:
    """Strip the commonest English endings: enough to join terminate and terminates."""
    if is_number(word):
        return word.replace(",", "").rstrip(".:/-")
    word = word.removesuffix("'s")
    if not word.isascii():
        return word
    for ending in ("ations", "ation", "ings", "ing", "ies", "ied", "es", "ed", "s", "e", "y"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word
