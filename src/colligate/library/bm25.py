"""BM25 term weights of texts in any script.

Words are split here and handed to Qdrant's BM25, which removes the stop words of the document's
language, stems, hashes each term and weighs it. Scripts written without spaces (Chinese, Japanese,
Thai...) become overlapping pairs of characters, as in Lucene's CJK analyser: a dictionary would cut
a query and a document differently. Accents, the Turkish dotless i and Arabic vowel marks are
folded, so a word is found with or without them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qdrant_edge import Bm25


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector: term ids and their weights."""

    ids: list[int]
    weights: list[float]

    def __bool__(self) -> bool:
        return bool(self.ids)


def encode_document(text: str, language: str) -> Terms:
    """Return a passage's terms; `language` is its document's (ISO 639-1, or "und")."""
    encoded = _model(_supported(language)).embed_document(" ".join(split_words(text)))
    return Terms(list(encoded.indices), list(encoded.values))


def encode_query(text: str, languages: Iterable[str]) -> Terms:
    """Return a query's terms, as documents of each of these languages would have them.

    Stop words of the query's own language are left out for all of them: in a library of several
    languages a document that quotes "what is the" would have the rarest words of a question. Words
    in capitals are none (WHO, IT), unless the whole query is in capitals.
    """
    words = list(dict.fromkeys(split_words(text)))
    names = {word for word in words if len(word) > 1 and word.isupper() and not text.isupper()}
    models = [_model(language) for language in {_supported(language) for language in languages}]
    if len(models) > 1:
        kept = [
            [word for word in words if word in names or model.embed_query(word).indices]
            for model in models
        ]
        kept.sort(key=len)
        if len(kept[0]) <= len(kept[1]) - _CLEARLY_MORE:
            words = kept[0] or words
    joined = " ".join(words)
    ids = {term for model in models for term in model.embed_query(joined).indices}
    return Terms(sorted(ids), [1.0] * len(ids))


# Stop words more than another language has in a query of this one: one alone may be a chance ("war"
# and "die" are German ones).
_CLEARLY_MORE = 2


# Languages for which Qdrant's BM25 has stop words (and mostly a stemmer).
_LANGUAGES = frozenset(
    "ar az bn ca da de el en es eu fi fr he hu id it kk ne nl no pt ro ru sl sv tg tr zh".split()
)
_NEUTRAL = ""  # no stop words, no stemmer

# Words of a passage of about 200 tokens without its stop words.
_AVERAGE_LENGTH = 128.0


def _supported(language: str) -> str:
    return language if language in _LANGUAGES else _NEUTRAL


@cache
def _model(language: str) -> Bm25:
    # Imported here: strategies use `split_words` alone.
    from qdrant_edge import Bm25, Bm25Config, DisabledStemmer, StopwordsSet, TokenizerType

    options: dict[str, Any] = {"language": language}
    if language == _NEUTRAL:
        options = {"stopwords": StopwordsSet(), "stemmer": DisabledStemmer()}
    return Bm25(
        Bm25Config(
            tokenizer=TokenizerType.Whitespace,
            lowercase=True,
            ascii_folding=True,
            avg_len=_AVERAGE_LENGTH,
            **options,
        )
    )


# Splitting words

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
