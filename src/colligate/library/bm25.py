"""BM25 term weights: what words a text has, in any script, and what they weigh.

Words are taken out here and handed to Qdrant's BM25, which removes the stop words of the
document's language, stems, hashes each term and weighs it. Scripts written without spaces
(Chinese, Japanese, Thai...) become overlapping pairs of characters, as in Lucene's CJK
analyser: a dictionary would cut a query and a document differently. Accents, the Turkish
dotless i and Arabic vowel marks are folded, so a word is found with or without them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from qdrant_edge import Bm25, Bm25Config, DisabledStemmer, StopwordsSet, TokenizerType

# Languages Qdrant's BM25 has stop words (and mostly a stemmer) for; others go without.
_LANGUAGES = frozenset(
    "ar az bn ca da de el en es eu fi fr he hu id it kk ne nl no pt ro ru sl sv tg tr zh".split()
)
_NEUTRAL = ""

# Words of a passage of about 200 tokens once its stop words are gone.
_AVERAGE_LENGTH = 128.0

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
_SILENT = re.compile(r"[\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06ed]")
_FOLDED = str.maketrans("أإآٱىёЁ", "اااايеЕ")  # forms of alef and ya; the Russian io


@dataclass(frozen=True, slots=True)
class Terms:
    """A sparse vector: term ids and their weights."""

    ids: list[int]
    weights: list[float]

    def __bool__(self) -> bool:
        return bool(self.ids)


def words(text: str) -> Iterator[str]:
    """The searchable words of a text, in order; pairs of characters where no spaces part words.

    >>> list(words("L’école, 3.5 % of 東京都"))
    ['L', 'école', '3.5', 'of', '東', '東京', '京', '京都', '都']
    """
    folded = _SILENT.sub("", unicodedata.normalize("NFKC", text).translate(_FOLDED))
    for run in _RUN.finditer(folded):
        if run["unspaced"]:
            yield from _pairs(run[0])
        else:
            yield run[0]


def document_terms(text: str, language: str) -> Terms:
    """What a passage is found by; `language` is its document's (ISO 639-1, or "und")."""
    return _terms(_model(_known(language)).embed_document(" ".join(words(text))))


def query_terms(text: str, languages: Iterable[str]) -> Terms:
    """What a query looks for: its terms as documents of each of the languages would have them."""
    joined = " ".join(words(text))
    ids: set[int] = set()
    for language in {_known(language) for language in languages}:
        ids.update(_model(language).embed_query(joined).indices)
    return Terms(sorted(ids), [1.0] * len(ids))


def _pairs(run: str) -> Iterator[str]:
    for at, character in enumerate(run):
        if len(run) == 1 or _SINGLE.match(character):
            yield character
        if at + 1 < len(run):
            yield run[at : at + 2]


def _known(language: str) -> str:
    return language if language in _LANGUAGES else _NEUTRAL


@cache
def _model(language: str) -> Bm25:
    rest = (
        {"language": language}
        if language
        else {"stopwords": StopwordsSet(), "stemmer": DisabledStemmer()}
    )
    return Bm25(
        Bm25Config(
            tokenizer=TokenizerType.Whitespace,
            lowercase=True,
            ascii_folding=True,
            avg_len=_AVERAGE_LENGTH,
            **rest,
        )
    )


def _terms(vector: object) -> Terms:
    return Terms(list(vector.indices), list(vector.values))  # type: ignore[attr-defined]
