"""Detect a text's language offline, from a sample of it."""

from __future__ import annotations

import re

_UNKNOWN = "und"
_FEWEST_LETTERS = 24  # of fewer, trigrams of an alphabet tell nothing
_CONFIDENCE = 0.8
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
    return _detect_by_trigrams(sample, _CONFIDENCE if is_latin else _CONFIDENCE_BEYOND_LATIN)


_WINDOW = 4_000  # characters of each of three samples: the beginning, the middle, near the end


def _take_sample(text: str) -> str:
    if len(text) <= 3 * _WINDOW:
        return text
    starts = (0, len(text) // 2, len(text) - 2 * _WINDOW)
    return "\n".join(text[start : start + _WINDOW] for start in starts)


# The codes of kreuzberg's detector (whatlang), ISO 639-3, as ISO 639-1.
_ISO_639_1 = dict(
    pair.split(":")
    for pair in (
        "afr:af aka:ak amh:am ara:ar aze:az bel:be ben:bn bul:bg cat:ca ces:cs cmn:zh cym:cy "
        "dan:da deu:de ell:el eng:en epo:eo est:et fin:fi fra:fr guj:gu heb:he hin:hi hrv:hr "
        "hun:hu hye:hy ind:id ita:it jav:jv jpn:ja kan:kn kat:ka khm:km kor:ko lat:la lav:lv "
        "lit:lt mal:ml mar:mr mkd:mk mya:my nep:ne nld:nl nob:no ori:or pan:pa pes:fa pol:pl "
        "por:pt ron:ro rus:ru sin:si slk:sk slv:sl sna:sn spa:es srp:sr swe:sv tam:ta tel:te "
        "tgl:tl tha:th tuk:tk tur:tr ukr:uk urd:ur uzb:uz vie:vi yid:yi zul:zu"
    ).split()
)


def _detect_by_trigrams(sample: str, confidence: float) -> str:
    # Imported here: the library has 76 MB.
    import kreuzberg

    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,
        language_detection=kreuzberg.LanguageDetectionConfig(min_confidence=confidence),
    )
    words = re.sub(r"https?://\S+|[\x00-\x1f\d|*_#`<>\[\](){}=/\\]+", " ", sample)
    found = kreuzberg.extract_bytes_sync(words.encode("utf-8", "replace"), "text/plain", config)
    codes = found.detected_languages
    return _ISO_639_1.get(codes[0], _UNKNOWN) if codes else _UNKNOWN
