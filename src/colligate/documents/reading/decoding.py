"""From bytes to text: which encoding they are in, and whether they are text at all."""

from __future__ import annotations

import codecs
import re

import charset_normalizer

from colligate.documents.languages import detect_language

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # begins like the UTF-16 mark, so it comes first
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_SAMPLE = 1 << 16


def decode(data: bytes) -> tuple[str, str]:
    """Return the text of a file, and the doubt about it ("" without one)."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return _decode_as(encoding, data[len(mark) :])
    try:
        return data.decode("utf-8"), ""
    except UnicodeDecodeError:
        pass
    text, doubt = _decode_as("utf-8", data)
    valid = len(re.findall(r"[^\x00-\x7f\ufffd]", text[:_SAMPLE]))
    if valid >= text[:_SAMPLE].count("\ufffd"):
        return text, doubt  # UTF-8, with damage
    encoding = _find_declared(data) or _guess_encoding(data)
    return data.decode(encoding, "replace"), (
        f"it is not UTF-8 and was read as {encoding}; if letters look wrong, save it as UTF-8"
    )


def _decode_as(encoding: str, data: bytes) -> tuple[str, str]:
    try:
        return data.decode(encoding), ""
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
        count = text.count("\ufffd")
        return text, f"it is not wholly {encoding.upper()}; {count:,} invalid places were replaced"


# Only encodings in which web pages are written: Python knows others, such as UTF-7.
_DECLARED = re.compile(
    rb"""<(?:meta|\?xml)\b[^>]*\b(?:charset|encoding)\s*=["'\s]*"""
    rb"""((?:iso-8859|windows|koi8|gb|big5|euc|shift)[\w-]*)""",
    re.IGNORECASE,
)
_CONTROLS = re.compile("[\x80-\x9f]")  # letters of a Windows encoding that is called ISO 8859


def _find_declared(data: bytes) -> str:
    """Return the encoding that HTML or XML states, if the bytes are text in it; else ""."""
    found = _DECLARED.search(data[:1024])
    encoding = found[1].decode().lower() if found else ""
    try:
        is_text = encoding and not _CONTROLS.search(data.decode(encoding))
    except (LookupError, UnicodeError):
        return ""
    return encoding if is_text else ""


_LIKELIEST = "cp1252"
_GUESSED_FROM = 1 << 20
_FEWEST_TELLING = 4  # bytes beyond ASCII
_LATIN = {"cp1254": {"tr", "az"}, "cp1250": {"cs", "sk", "pl", "hu", "sl", "hr", "ro"}}
_ENCODINGS = (
    *("cp1252", "cp1250", "cp1251", "cp1253", "cp1254", "cp1255", "cp1256", "koi8_r"),
    *("gb18030", "big5", "cp932", "euc_jp", "cp949"),
)


def _guess_encoding(data: bytes) -> str:
    """Return the likeliest encoding of bytes that are not UTF-8; Windows-1252 if too few tell."""
    lines = [line for line in data[:_GUESSED_FROM].split(b"\n") if not line.isascii()]
    telling = b"\n".join(lines)
    if sum(byte > 127 for byte in telling) < _FEWEST_TELLING:
        return _LIKELIEST
    best = charset_normalizer.from_bytes(telling, cp_isolation=list(_ENCODINGS)).best()
    if best is not None and best.encoding not in (_LIKELIEST, *_LATIN):
        return best.encoding
    # Between the Latin ones the guess is often wrong (French as Czech), so the language decides.
    for encoding, languages in _LATIN.items():
        if detect_language(telling.decode(encoding, "replace")) in languages:
            return encoding
    return _LIKELIEST


# Control characters that text files hold: backspace, tab, newline, vertical tab, form feed,
# carriage return, end of file (Ctrl-Z), escape.
_STRANGE = bytes(set(range(32)) - {8, 9, 10, 11, 12, 13, 26, 27}) + b"\x7f"
_STRANGE_SHARE = 0.01


def looks_binary(data: bytes) -> bool:
    """Report whether the first 64 KiB hold NUL bytes or many control characters."""
    if data.startswith(tuple(mark for mark, _ in _BOMS[1:])):
        return False
    sample = data[:_SAMPLE]
    strange = len(sample) - len(sample.translate(None, _STRANGE))
    return b"\x00" in sample or strange > _STRANGE_SHARE * len(sample)
