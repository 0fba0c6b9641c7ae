"""What is taken off a text before it is compared: marks of citations, case, articles."""

from __future__ import annotations

import re
import string
import unicodedata

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_MARK = re.compile(r"\s*\[(?:\d+(?:\s*[,;]\s*\d+)*|uncited)\]")


def unmarked(text: str) -> str:
    """A text without the marks of its citations.

    >>> unmarked("It rained in May [1][2]. It was cold [uncited].")
    'It rained in May. It was cold.'
    """
    return _MARK.sub("", text).strip()


def squad(text: str) -> str:
    """SQuAD's normalisation: lower case, no ASCII punctuation, no articles, single blanks.

    Punctuation is deleted, not replaced by a blank; ’ and – are not ASCII and stay.

    >>> squad("The  Anglo-Saxons’ king")
    'anglosaxons’ king'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def dual(text: str) -> str:
    """DualRAG's: `squad` after Unicode's NFD; marks that were parts of letters stay."""
    return squad(unicodedata.normalize("NFD", text))


def first_line(text: str) -> str:
    """What stands before the first line break, without blanks around it.

    A text that begins with a line break has an empty first line, as in Lost in the Middle.
    """
    return text.split("\n")[0].strip()


def alce_output(text: str) -> str:
    """An answer as ALCE's evaluation prepares it: stripped, its first line, no citations."""
    return unmarked(first_line(text.strip()))
