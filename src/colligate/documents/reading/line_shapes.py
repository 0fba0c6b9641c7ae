"""What a line of plain text looks like: ruled, centred, in capitals, short as a title."""

from __future__ import annotations

import re
from collections.abc import Sequence

from colligate.documents.reading.textblocks import Line

_LONGEST = 100  # characters of a heading's line
_MOST_WORDS = 14
_CENTRED_WITHIN = 6  # columns
_RULE = re.compile(r"([=\-~^*_#])\1{2,}")
WORD = re.compile(r"[^\W\d_][\w'’-]*")


def is_ruled(text: str, line: Line, below: Line) -> bool:
    """Whether the line below is a rule that underlines this one."""
    rule = text[below.start : below.end]
    length = line.end - line.start
    return (
        _RULE.fullmatch(rule) is not None
        and length <= _LONGEST
        and length / 2 <= len(rule) <= length + 4
        and abs(line.indent - below.indent) <= 2
        and WORD.search(text, line.start, line.end) is not None
    )


def unboxed(text: str, line: Line) -> Line:
    """The line without the sides of a box of asterisks or bars drawn around it."""
    words = text[line.start : line.end]
    side = words[0]
    if side not in "*|" or len(words) < 5 or not words.endswith(side):
        return line
    inner = words.strip(side).strip()
    start = line.start + words.find(inner)
    return Line(start, start + len(inner), line.indent + start - line.start) if inner else line


def is_short(words: str) -> bool:
    """Whether it is not too long for a heading."""
    return len(words) <= _LONGEST and len(words.split()) <= _MOST_WORDS


def is_capitals(words: str) -> bool:
    """Whether its first line is in capitals, a word of three letters among them."""
    first_line = words.split("\n", 1)[0]
    return first_line.isupper() and any(len(word) >= 3 for word in WORD.findall(first_line))


def is_title(words: str) -> bool:
    """Whether the words of four letters and more begin with capitals, as titles do."""
    long = [word for word in WORD.findall(words) if len(word) >= 4]
    capital = sum(1 for word in long if word[0].isupper())
    return is_short(words) and bool(long) and capital >= 0.8 * len(long)


def is_centred(lines: Sequence[Line], width: int) -> bool:
    """Whether each line stands in the middle of the text's width."""
    return all(
        line.indent >= 8
        and abs(line.indent + (line.end - line.start) / 2 - width / 2) <= _CENTRED_WITHIN
        for line in lines
    )


def is_address(text: str, line: Line) -> bool:
    """Whether the line is a web address and nothing else."""
    return re.match(r"<?(?:https?://|www\.)\S*$", text[line.start : line.end]) is not None


def ends_early(text: str, lines: Sequence[Line], width: int) -> bool:
    """Whether the next line's first word would still have fitted on the first line."""
    first, second = lines[0], lines[1]
    word = text[second.start : second.end].split(None, 1)[0]
    return first.indent + (first.end - first.start) + 1 + len(word) <= 0.85 * width
