"""Detect a text's language offline, from a sample of it."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

_UNKNOWN = "und"
_FEWEST_LETTERS = 24  # of fewer, letters of an alphabet tell nothing
_CONFIDENCE = 0.7
_CONFIDENCE_BEYOND_LATIN = 0.3  # few languages share another script
_SHARE = 0.5

# Scripts that (nearly) one language uses, so that the script alone tells the language.
_SCRIPTS = {
    "ko": r"[\uac00-\ud7af\u1100-\u11ff]",
    "el": r"[\u0370-\u03ff\u1f00-\u1fff]",
    "th": r"[\u0e00-\u0e7f]",
    "ka": r"[\u10a0-\u10ff]",
    "hy": r"[\u0530-\u058f]",
    "ta": r"[\u0b80-\u0bff]",
    "te": r"[\u0c00-\u0c7f]",
    "kn": r"[\u0c80-\u0cff]",
    "ml": r"[\u0d00-\u0d7f]",
    "gu": r"[\u0a80-\u0aff]",
    "pa": r"[\u0a00-\u0a7f]",
    "bn": r"[\u0980-\u09ff]",
    "si": r"[\u0d80-\u0dff]",
    "km": r"[\u1780-\u17ff]",
    "lo": r"[\u0e80-\u0eff]",
    "my": r"[\u1000-\u109f]",
    "am": r"[\u1200-\u137f]",
}
_ONE_LANGUAGE = {code: re.compile(pattern) for code, pattern in _SCRIPTS.items()}
_HAN = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")
_KANA = re.compile(r"[\u3040-\u30ff]")
_LATIN = re.compile(r"[A-Za-z\u00c0-\u024f\u1e00-\u1eff]")
_LETTER = re.compile(r"[^\W\d_]")


def detect_language(text: str) -> str:
    """Return the ISO 639-1 code of a text's main language, or "und" if it is unclear.

    >>> detect_language("市议会昨天决定在车站附近建一所新学校。")
    'zh'
    >>> detect_language("Le conseil municipal a décidé hier de construire une nouvelle école.")
    'fr'
    >>> detect_language("42")
    'und'
    """
    sample = _take_sample(text)
    letters = len(_LETTER.findall(sample))
    if letters == 0:
        return _UNKNOWN
    # A Han character counts for about two letters of an alphabet.
    kana, han = len(_KANA.findall(sample)), len(_HAN.findall(sample))
    if 2 * (kana + han) > _SHARE * (letters + kana + han):
        return "ja" if kana > 0.05 * (kana + han) else "zh"
    for code, script in _ONE_LANGUAGE.items():
        if len(script.findall(sample)) > _SHARE * letters:
            return code
    if letters < _FEWEST_LETTERS:
        return _UNKNOWN
    is_latin = len(_LATIN.findall(sample)) > _SHARE * letters
    return _detect_by_letters(sample, _CONFIDENCE if is_latin else _CONFIDENCE_BEYOND_LATIN)


_WINDOW = 2_000  # characters of each of three samples: the beginning, the middle, near the end


def _take_sample(text: str) -> str:
    if len(text) <= 3 * _WINDOW:
        return text
    starts = (0, len(text) // 2, len(text) - 2 * _WINDOW)
    return "\n".join(text[start : start + _WINDOW] for start in starts)


@cache
def _load_identifier() -> Any:
    # Imported here: its model takes half a second.
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    identifier.set_languages([code for code in identifier.labels if len(code) == 2])
    return identifier


def _detect_by_letters(sample: str, confidence: float) -> str:
    words = re.sub(r"https?://\S+|-{2,}|[\x00-\x1f\d|*_#`<>\[\](){}=/\\]+", " ", sample)
    code, share = _load_identifier().classify(words)
    return code if share >= confidence else _UNKNOWN
