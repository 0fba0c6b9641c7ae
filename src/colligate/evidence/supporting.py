"""DuQUAD's supporting sentences: those of a document that share most words with an answer."""

from __future__ import annotations

import re
import unicodedata

from colligate.documents import Document, Span
from colligate.documents.sentences import sentence_spans
from colligate.token_estimate import CJK

_ARTICLES = frozenset(("a", "an", "the"))
_WORD = re.compile(rf"[{CJK}]|[^\s{CJK}]+")


def supporting(document: Document, within: Span, answer: str, most: int = 2) -> list[Span]:
    """The `most` sentences with the most of the answer's distinct words, in document order.

    Of equals the earlier one is taken; where no sentence has any, the first ones are.
    """
    wanted = words(answer)
    sentences = sentence_spans(document, within)
    shared = [len(wanted & words(document.slice(sentence))) for sentence in sentences]
    best = sorted(range(len(sentences)), key=lambda at: (-shared[at], at))[:most]
    return [sentences[at] for at in sorted(best)]


def words(text: str) -> set[str]:
    """The distinct words of a text as SQuAD compares them: lower case, without marks and articles.

    Characters that no blanks divide count one by one.

    >>> sorted(words("The U.S. and an atlas"))
    ['and', 'atlas', 'us']
    """
    bare = "".join(c for c in unicodedata.normalize("NFKC", text).lower() if not _mark(c))
    return set(_WORD.findall(bare)) - _ARTICLES


def _mark(character: str) -> bool:
    """Whether it is punctuation or another mark, such as `$` and `+`."""
    return unicodedata.category(character)[0] in "PS"
