"""Detect a text's language offline, from a sample of it."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any

_UNKNOWN = "und"
_CONFIDENCE = 0.65
_WINDOW = 2_000  # characters of each of three samples: the beginning, the middle, near the end
_NO_WORDS = re.compile(r"https?://\S+|-{2,}|[\x00-\x1f\d|*_#`<>\[\](){}=/\\]+")


def detect_language(text: str) -> str:
    """Return the ISO 639-1 code of a text's main language, or "und" if it is unclear.

    >>> detect_language("市议会昨天决定在车站附近建一所新学校。")
    'zh'
    >>> detect_language("Le conseil municipal a décidé hier de construire une nouvelle école.")
    'fr'
    >>> detect_language("42")
    'und'
    """
    if len(text) > 3 * _WINDOW:
        starts = (0, len(text) // 2, len(text) - 2 * _WINDOW)
        text = "\n".join(text[start : start + _WINDOW] for start in starts)
    sample = _NO_WORDS.sub(" ", text)
    if not any(map(str.isalpha, sample)):
        return _UNKNOWN
    code, share = _load_identifier().classify(sample)
    return str(code) if share >= _CONFIDENCE else _UNKNOWN


_LEAST_SHARE = 0.02  # of 2,800 questions in English none had less of English


def guess_languages(text: str) -> dict[str, float]:
    """Return the share of each language in a short text, {} without letters; slow the first time.

    >>> max(shares := guess_languages("Wie hoch ist die Miete?"), key=shares.get)
    'de'
    """
    sample = _NO_WORDS.sub(" ", text)
    return dict(_load_identifier().rank(sample)) if any(map(str.isalpha, sample)) else {}


def other_language(shares: Mapping[str, float], known: Collection[str]) -> str:
    """Return the likeliest language of a text if it is surely in none of the known ones; else "".

    >>> other_language(guess_languages("Wie hoch ist die Miete?"), ["en", "fr"])
    'de'
    >>> other_language(guess_languages("Wie hoch ist die Miete?"), ["de"])
    ''
    """
    if not (shares and known) or sum(shares.get(each, 0.0) for each in known) >= _LEAST_SHARE:
        return ""
    return max(shares, key=lambda code: shares[code])


@cache
def language_name(code: str) -> str:
    """Return the English name of a language by its ISO 639-1 code.

    >>> language_name("de")
    'German'
    """
    from babel import Locale

    return str(Locale("en").languages.get(code, code))


@cache
def _load_identifier() -> Any:
    # Imported here: its model takes half a second.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages([code for code in identifier.labels if len(code) == 2])
    return identifier
