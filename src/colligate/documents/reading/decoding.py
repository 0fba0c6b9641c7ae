"""From bytes to text: which encoding they are in, and whether they are text at all."""

from __future__ import annotations

import codecs
import re
import unicodedata
from contextlib import suppress

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
    if encoding := _find_utf_16(data[:_SAMPLE]):
        text, doubt = _decode_as(encoding, data)
        return text, doubt or f"it does not say its encoding and was read as {encoding.upper()}"
    with suppress(UnicodeDecodeError):
        return data.decode("utf-8"), ""
    text, doubt = _decode_as("utf-8", data)
    valid = len(re.findall(r"[^\x00-\x7f\ufffd]", text[:_SAMPLE]))
    if valid >= text[:_SAMPLE].count("\ufffd"):
        return text, doubt  # UTF-8, with damage
    encoding = _find_declared(data) or _guess_encoding(data)
    doubt = f"it is not UTF-8 and was read as {encoding}; if letters look wrong, save it as UTF-8"
    return data.decode(encoding, "replace"), doubt


# What programs name by a smaller encoding that is part of it, as browsers know (WHATWG).
_WIDER = {"iso8859-1": "cp1252", "iso8859-9": "cp1254", "gb2312": "gb18030", "gbk": "gb18030"}
_WIDER |= {"shift_jis": "cp932", "euc_kr": "cp949", "tis-620": "cp874", "big5": "big5hkscs"}


def widen_encoding(name: str) -> str:
    """Return the encoding that one is part of and that its name is used for; else the name."""
    with suppress(LookupError):
        return _WIDER.get(codecs.lookup(name).name, name)
    return name


def _decode_as(encoding: str, data: bytes) -> tuple[str, str]:
    try:
        return data.decode(encoding).lstrip("\ufeff"), ""
    except UnicodeDecodeError:
        text = data.decode(encoding, "replace")
        count = text.count("\ufffd")
        return text, f"it is not wholly {encoding.upper()}; {count:,} invalid places were replaced"


_NO_TEXT = {"Cc", "Cn", "Co"}  # categories of characters


def _find_utf_16(sample: bytes) -> str:
    """Return which UTF-16 bytes without a mark are in; "" if they are anything else."""
    # Its Latin letters, digits and blanks have one empty byte each, always the first or the second.
    empty = [sample[place::2].count(0) for place in (0, 1)]
    if not any(empty) or all(empty):
        return ""
    if 8 * sum(empty) < len(sample) and _is_text("utf-8", sample, {"\x00"}):
        return ""  # stray NULs in another text
    encoding = "utf-16-be" if empty[0] else "utf-16-le"
    return encoding if _is_text(encoding, sample, set()) else ""


def _is_text(encoding: str, sample: bytes, allowed: set[str]) -> bool:
    """Report whether a sample, which may end inside a letter, is text without strange controls."""
    try:
        found = set(codecs.getincrementaldecoder(encoding)().decode(sample))
    except UnicodeDecodeError:
        return False
    strange = {each for each in found if unicodedata.category(each) in _NO_TEXT}
    return not strange - _ALLOWED_CONTROLS - allowed


def read_beginning(data: bytes, length: int) -> str:
    """Return the first characters of a text; those beyond ASCII may be wrong."""
    encoding = next((name for mark, name in _BOMS if data.startswith(mark)), "")
    encoding = encoding or _find_utf_16(data[:_SAMPLE]) or "latin-1"
    return data[: 4 * length].decode(encoding, "replace").lstrip("\ufeff \t\r\n")[:length]


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
    encoding = widen_encoding(found[1].decode().lower()) if found else ""
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
    count = sum(byte > 127 for byte in telling)
    if count < _FEWEST_TELLING:
        return _LIKELIEST
    if 4 * count < len(telling) and _count_letters(telling, _LIKELIEST) < 0:
        fitting = max(_OLD_LATIN, key=lambda name: _count_letters(telling, name))
        if _count_letters(telling, fitting) > 0:
            return fitting
    best = charset_normalizer.from_bytes(telling, cp_isolation=list(_ENCODINGS)).best()
    if best is not None and best.encoding not in (_LIKELIEST, *_LATIN):
        return best.encoding
    # Between the Latin ones the guess is often wrong (French as Czech), so the language decides.
    for encoding, languages in _LATIN.items():
        if detect_language(telling.decode(encoding, "replace")) in languages:
            return encoding
    return _LIKELIEST


_OLD_LATIN = ("mac_roman", "cp850")  # of the first Macintosh, and of DOS
_INSIDE_WORD = re.compile(r"(?<=[a-z])[^\x00-\x7f](?=[a-z])")


def _count_letters(data: bytes, encoding: str) -> int:
    """Return how many more small letters than other characters an encoding puts inside words."""
    inside = _INSIDE_WORD.findall(data.decode(encoding, "replace"))
    return sum(1 if each.islower() and each < "\u0250" else -1 for each in inside)


# Control characters that text files hold: backspace, tab, newline, vertical tab, form feed,
# carriage return, end of file (Ctrl-Z), escape.
_CONTROLS_OF_TEXT = {8, 9, 10, 11, 12, 13, 26, 27}
_ALLOWED_CONTROLS = set(map(chr, _CONTROLS_OF_TEXT))
_STRANGE = bytes(set(range(32)) - _CONTROLS_OF_TEXT) + b"\x7f"
_STRANGE_SHARE = 0.01


def looks_binary(data: bytes) -> bool:
    """Report whether the first 64 KiB hold many control characters, NUL bytes among them."""
    if data.startswith(tuple(mark for mark, _ in _BOMS[1:])):
        return False
    sample = data[:_SAMPLE]
    if _find_utf_16(sample):
        return False
    strange = len(sample) - len(sample.translate(None, _STRANGE))
    return strange > _STRANGE_SHARE * len(sample)
