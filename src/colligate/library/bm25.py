"""BM25 term weights of texts in any script.

A word loses its capitals and accents, stop words of its document's language go, the rest is stemmed
and becomes a number. Scripts written without spaces (Chinese, Japanese, Thai...) become overlapping
pairs of characters, as in Lucene's CJK analyser: a dictionary would cut a query and a document
differently. The Turkish dotless i and Arabic vowel marks are folded as accents are.

Numbers and weights are those of Qdrant's BM25, which older libraries were indexed with.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import mmh3
from py_rust_stemmers import SnowballStemmer


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector: term ids and their weights."""

    ids: list[int]
    weights: list[float]

    def __bool__(self) -> bool:
        return bool(self.ids)


def encode_document(text: str, language: str) -> Terms:
    """Return a passage's terms; `language` is its document's (ISO 639-1, or "und")."""
    counts = Counter(_encode(split_words(text), language))
    damping = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * counts.total() / _AVERAGE_LENGTH)
    ids = sorted(counts)
    return Terms(ids, [counts[id_] * (_SATURATION + 1) / (counts[id_] + damping) for id_ in ids])


def encode_query(text: str, languages: Iterable[str]) -> Terms:
    """Return a query's terms, as documents of each of these languages would have them.

    Stop words of the query's own language are left out for all of them: in a library of several
    languages a document that quotes "what is the" would have the rarest words of a question. Words
    in capitals are none (WHO, IT), unless the whole query is in capitals.
    """
    words = list(dict.fromkeys(split_words(text)))
    names = {word for word in words if len(word) > 1 and word.isupper() and not text.isupper()}
    # Languages without stop words are all one.
    known = {language if language in _stop_words() else "" for language in languages}
    if len(known) > 1:
        kept = [
            [word for word in words if word in names or _to_term(word, language) is not None]
            for language in known
        ]
        kept.sort(key=len)
        if len(kept[0]) <= len(kept[1]) - _CLEARLY_MORE:
            words = kept[0] or words
    ids = {term for language in known for term in _encode(words, language)}
    return Terms(sorted(ids), [1.0] * len(ids))


# Stop words more than another language has in a query of this one: one alone may be a chance ("war"
# and "die" are German ones).
_CLEARLY_MORE = 2

# BM25's k1 and b, and the words of a passage of about 200 tokens without its stop words.
_SATURATION, _BY_LENGTH, _AVERAGE_LENGTH = 1.2, 0.75, 128.0

# Languages whose words are stemmed.
_STEMMED = frozenset("ar da de el en es fi fr hu it nl no pt ro ru sv tr".split())


def _encode(words: Iterable[str], language: str) -> Iterator[int]:
    terms = (_to_term(word, language) for word in words)
    return (term for term in terms if term is not None)


@lru_cache(1 << 17)
def _to_term(word: str, language: str) -> int | None:
    """Return a word's number; None for a stop word of the language."""
    folded = _fold(word.lower())
    if folded in _stop_words().get(language, ()):
        return None
    if language in _STEMMED:
        folded = _stemmer(language).stem_word(folded)
    return abs(mmh3.hash(folded))


@cache
def _stemmer(language: str) -> SnowballStemmer:
    from babel import Locale  # which takes time to load

    return SnowballStemmer(str(Locale(language).english_name).lower())


@cache
def _stop_words() -> dict[str, frozenset[str]]:
    """Return the stop words of each language that has some, folded."""
    lists = json.loads(Path(__file__).with_name("stop_words.json").read_text("utf-8"))
    return {language: frozenset(words.split()) for language, words in lists.items()}


# Folding accents of Latin letters; those of other scripts tell words apart

_ACCENTS = re.compile("(?<=[a-z])[\u0300-\u036f]+")
_LETTERS = str.maketrans(
    "ðøđħıĸłŋŧƀƃƈƌƒƙƚƞƥƫƭƴƶƿǝǥȝȡȥȴȵȶȷȼȿɀɇɉɋɍɏɐɓɔɖɗəɛɠɨɲɵɽʈʉʋʌ",
    "dodhiqlntbbcdfklnpttyzwegzdzlntjcszejqryaboddaeginortuvv",
) | str.maketrans({"ß": "ss", "æ": "ae", "þ": "th", "œ": "oe", "ƕ": "hv", "ȣ": "ou"})


def _fold(word: str) -> str:
    if word.isascii():
        return word
    decomposed = unicodedata.normalize("NFD", word.translate(_LETTERS))
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))


_HAN = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = (
    _HAN
    + r"\u3005\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff"  # kana
    + r"\uac00-\ud7af\u1100-\u11ff"  # Hangul: its particles are glued to the word
    + r"\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece"  # Thai, Lao
    + r"\u1000-\u103f\u1780-\u17d3"  # Burmese, Khmer
)
_MARKS = r"\u0300-\u036f\u0483-\u0487\u0900-\u0963\u0966-\u0dff"  # Indic vowel signs are marks
_RUN = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]+)|\d+(?:[.,]\d+)+|(?:(?![{_UNSPACED}])[\w{_MARKS}])+"
)
_ASCII_RUN = re.compile(r"\d+(?:[.,]\d+)+|\w+")
_SINGLE = re.compile(rf"[{_HAN}]")
_SILENT = re.compile(
    r"[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    r"\u00ad\u200d\u2060]"  # soft hyphen, joiners
    r"|\u200c(?![\u0600-\u06ff])"  # in Persian it parts a word from its endings, as a blank does
)
_FOLDED = str.maketrans("أإآٱىёЁ", "اااايеЕ")  # forms of alef and ya; the Russian io


def split_words(text: str) -> Iterator[str]:
    """Yield a text's searchable words; pairs of characters in scripts without spaces.

    >>> list(split_words("L’école, 3.5 % of 東京都"))
    ['L', 'école', '3.5', 'of', '東', '東京', '京', '京都', '都']
    """
    if text.isascii():
        yield from _ASCII_RUN.findall(text)
        return
    folded = _SILENT.sub("", unicodedata.normalize("NFKC", text).translate(_FOLDED))
    for run in _RUN.finditer(folded):
        if run["unspaced"]:
            yield from _pair(run[0])
        else:
            yield run[0]


def _pair(run: str) -> Iterator[str]:
    for at, character in enumerate(run):
        if len(run) == 1 or _SINGLE.match(character):
            yield character
        if at + 1 < len(run):
            yield run[at : at + 2]
