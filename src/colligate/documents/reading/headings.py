"""Headings of plain text; a doubtful line stays a paragraph.

Four kinds are headings: an underlined line; a numbered title in an ascending sequence
("2. Grant of Patent License. Subject to ..."); a short line on its own that is centred or in
capitals; and a short line that begins with "Chapter 3", "Appendix A" and the like. Numbered
paragraphs without titles are sections too, titled by their number, where each may hold several
paragraphs, as in many licences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from colligate.documents.tree import Basis, Structure

_FEWEST = 2  # a single heading is as likely a chance line


def find_headings(text: str, blocks: Sequence[TextBlock]) -> list[TextHeading]:
    """Find the headings of a plain text, in order; a single one is not trusted."""
    width = _measure_width(blocks)
    found = [c for i, block in enumerate(blocks) for c in _find_candidates(text, block, i, width)]
    kept = _drop_unsure_numbers(found, blocks)
    return list(_assign_levels(kept)) if len(kept) >= _FEWEST else []


@dataclass(frozen=True, slots=True)
class TextHeading:
    """A heading: its range in the text, level (from 1), words, and whether it is numbered."""

    start: int
    end: int
    level: int
    title: str
    numbered: bool


def structure_of(headings: Sequence[TextHeading]) -> Structure:
    """Return how sure headings of plain text are."""
    if not headings:
        return Structure(1.0, Basis.NONE)
    if any(heading.numbered for heading in headings):
        return Structure(0.8, Basis.NUMBERING, "headings of plain text, known by their numbers")
    return Structure(0.6, Basis.LAYOUT, "headings of plain text, known by their layout")


class _Style(Enum):
    RULED = "ruled"
    ALONE = "alone"  # centred, in capitals, or with a keyword
    NUMBERED = "numbered"
    PARAGRAPH = "paragraph"  # a numbered paragraph without a title


@dataclass(frozen=True, slots=True)
class _Candidate:
    block: int
    start: int
    end: int
    title: str
    style: _Style
    number: tuple[int, ...] = ()
    rule: str = ""
    indent: int = 0
    closes: bool = True  # it is the end of its block


_WIDEST = 120


def _measure_width(blocks: Sequence[TextBlock]) -> int:
    """Return the text's width in columns: nearly all lines end before it."""
    ends = sorted(
        line.indent + line.end - line.start for block in blocks[:2000] for line in block.lines
    )
    return min(_WIDEST, ends[int(0.95 * (len(ends) - 1))]) if ends else 0


def _find_candidates(text: str, block: TextBlock, index: int, width: int) -> Iterator[_Candidate]:
    lines = block.lines
    at = 0
    while at < len(lines):
        inner = _strip_box(text, lines[at])
        if at + 1 < len(lines) and _is_ruled(text, inner, below := _strip_box(text, lines[at + 1])):
            mark = text[below.start]
            title = text[inner.start : inner.end]
            number = _read_number(title)
            yield _Candidate(
                index,
                lines[at].start,
                lines[at + 1].end,
                title,
                _Style.NUMBERED if number else _Style.RULED,
                number,
                mark,
                closes=at + 2 == len(lines),
            )
            at += 2
            continue
        if at == 0:
            first = _read_first_line(text, block, index, width)
            if first is not None:
                yield first
        at += 1


_MOST_LINES = 3

_NUMBER = re.compile(r"(?:§\s*)?(\d{1,3}(?:\.\d{1,3}){0,4})(\.|\)|:)?[ \t]+(?=\S)")
_KEYWORD = re.compile(
    r"(?:chapter|part|section|article|book|appendix|annex|schedule|exhibit|item)\s+"
    r"(?:\d{1,3}|[ivxlc]{1,7}|[a-z])(?:[.:)\s]|$)|(?:appendix|annex|preamble)(?:[.:]|$)",
    re.IGNORECASE,
)
_CONTENTS_LINE = re.compile(r"\.{4,}|(?:\. ){3,}|\s{3,}\d+$")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


def _read_first_line(text: str, block: TextBlock, index: int, width: int) -> _Candidate | None:
    """Return the heading that a block is or begins with, underlined ones aside."""
    line = block.lines[0]
    words = text[line.start : line.end]
    if _CONTENTS_LINE.search(words):
        return None
    match = _NUMBER.match(words)
    if match is not None:
        return _read_numbered(text, block, index, match, width)
    if len(block.lines) > _MOST_LINES:
        return None
    whole = " ".join(text[x.start : x.end] for x in block.lines if not _is_address(text, x))
    if not _is_short(whole) or whole.endswith((",", ";")) or _WORD.search(whole) is None:
        return None
    alone = (
        _is_centred(block.lines, width)
        or (_is_capitals(whole) and not whole.endswith("."))
        or (len(block.lines) == 1 and _KEYWORD.match(whole))
    )
    if not alone:
        return None
    return _Candidate(index, block.start, block.end, whole, _Style.ALONE)


_RUN_IN = re.compile(r"([^.]{3,80}?)\.(?=\s|$)")


def _read_numbered(
    text: str, block: TextBlock, index: int, match: re.Match[str], width: int
) -> _Candidate | None:
    line = block.lines[0]
    number = tuple(map(int, match[1].split(".")))
    start = line.start
    rest = text[start + match.end() : block.end]
    words = text[start : line.end]
    if len(number) == 1 and match[2] is None and not _is_capitals(rest):
        return None  # "12 people came": a bare number needs a mark, or a title in capitals
    ended_early = len(block.lines) == 1 or _ends_early(text, block.lines, width)
    if (
        ended_early
        and _is_short(words)
        and not words.endswith((",", ";"))
        and (len(block.lines) == 1 or _is_title(text[start + match.end() : line.end]))
    ):
        closes = len(block.lines) == 1
        return _Candidate(
            index, start, line.end, words, _Style.NUMBERED, number, "", line.indent, closes
        )
    run_in = _RUN_IN.match(rest)
    if run_in is not None and _is_title(run_in[1]):
        end = start + match.end() + run_in.end()
        title = " ".join(text[start:end].split())
        return _Candidate(
            index, start, end, title, _Style.NUMBERED, number, "", line.indent, end == block.end
        )
    end = start + len(match[0].rstrip())
    return _Candidate(
        index, start, end, text[start:end], _Style.PARAGRAPH, number, "", line.indent, False
    )


def _drop_unsure_numbers(
    found: Sequence[_Candidate], blocks: Sequence[TextBlock]
) -> list[_Candidate]:
    """Leave out numbers that do not ascend, and numbered lines that are a list.

    At least half of the numbered titles of one depth must be followed by text: run-in text or
    paragraphs that are not the next number. At least three numbered paragraphs are needed, and a
    third of them must continue in further paragraphs.
    """
    ascending = _select_ascending([c for c in found if c.number])
    last = len(blocks)
    heads: dict[tuple[_Style, int], list[bool]] = {}
    in_sequence = set(ascending)
    ends = [c.block for c in found if c.style is not _Style.PARAGRAPH or c in in_sequence]
    following = dict(pairwise([*ends, last]))
    for c in ascending:
        more_blocks = following.get(c.block, last) > c.block + 1
        more = more_blocks if c.style is _Style.PARAGRAPH else more_blocks or not c.closes
        heads.setdefault((c.style, len(c.number)), []).append(more)
    # A numbered title directly above its subsections is followed by those.
    deepest = max((len(c.number) for c in ascending), default=0)
    sure = {
        (style, depth)
        for (style, depth), more in heads.items()
        if (style is _Style.NUMBERED and (2 * sum(more) >= len(more) or depth < deepest))
        or (style is _Style.PARAGRAPH and len(more) >= 3 and 3 * sum(more) >= len(more))
    }
    sure_ones = {c for c in ascending if (c.style, len(c.number)) in sure}
    return [c for c in found if not c.number or c in sure_ones]


def _select_ascending(numbered: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the numbers that follow the previous one or begin a new sequence."""
    kept: list[_Candidate] = []
    previous: tuple[int, ...] = ()
    for i, c in enumerate(numbered):
        begins = c.number in ((0,), (1,))
        # A beginning needs a next number; a single number is not a sequence.
        goes_on = i + 1 < len(numbered) and _follows(c.number, numbered[i + 1].number)
        if c.rule or (previous and _follows(previous, c.number)) or (begins and goes_on):
            kept.append(c)
            previous = c.number
    return kept


def _follows(previous: tuple[int, ...], number: tuple[int, ...]) -> bool:
    if len(number) > len(previous):
        return number[:-1] == previous and number[-1] in (0, 1)
    depth = len(number)
    return number[:-1] == previous[: depth - 1] and number[-1] == previous[depth - 1] + 1


def _assign_levels(kept: Sequence[_Candidate]) -> Iterator[TextHeading]:
    """Yield headings with levels: the title, then lines alone or underlined, then numbers by depth.

    Numbers that begin directly below a heading without a number belong to it; otherwise they are
    on its level.
    """
    titled = kept[0].block == 0 and not kept[0].number
    top = 2 if titled else 1
    rules: list[str] = []
    base = level = top - 1
    before: _Candidate | None = None
    for i, c in enumerate(kept):
        if c.number:
            if before is not None and not before.number and before.block >= c.block - 1:
                base = level
            level = base + len(c.number)
        elif i == 0 and titled:
            level = 1
        elif c.style is _Style.RULED:
            if c.rule not in rules and not (titled and c.rule == kept[0].rule):
                rules.append(c.rule)
            level = top + (rules.index(c.rule) if c.rule in rules else 0)
            base = top - 1
        else:
            level = top
            base = top - 1
        yield TextHeading(c.start, c.end, level, c.title, bool(c.number))
        before = c


def _read_number(words: str) -> tuple[int, ...]:
    match = _NUMBER.match(words)
    return tuple(map(int, match[1].split("."))) if match else ()


# Blocks: lines without a blank one between them.


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line's range in the text, without blanks around it, and its indentation."""

    start: int
    end: int
    indent: int


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Lines without a blank one between them; blanks around it are not part of it."""

    lines: tuple[TextLine, ...]

    @property
    def start(self) -> int:
        """The place of its first character."""
        return self.lines[0].start

    @property
    def end(self) -> int:
        """The end of its last character."""
        return self.lines[-1].end


def split_blocks(text: str) -> list[TextBlock]:
    """Return the blocks of a text in order; they hold all characters that are not blank."""
    blocks: list[TextBlock] = []
    lines: list[TextLine] = []
    at = 0
    for raw in text.split("\n"):
        words = raw.strip()
        if words:
            lead = len(raw) - len(raw.lstrip())
            indent = len(raw[:lead].expandtabs())
            lines.append(TextLine(at + lead, at + lead + len(words), indent))
        elif lines:
            blocks.append(TextBlock(tuple(lines)))
            lines = []
        at += len(raw) + 1
    if lines:
        blocks.append(TextBlock(tuple(lines)))
    return blocks


# The look of a line: underlined, centred, in capitals, short as a title.

_LONGEST = 100  # characters of a heading's line
_RULE = re.compile(r"([=\-~^*_#])\1{2,}")


def _is_ruled(text: str, line: TextLine, below: TextLine) -> bool:
    """Report whether the line below underlines this one."""
    rule = text[below.start : below.end]
    length = line.end - line.start
    return (
        _RULE.fullmatch(rule) is not None
        and length <= _LONGEST
        and length / 2 <= len(rule) <= length + 4
        and abs(line.indent - below.indent) <= 2
        and _WORD.search(text, line.start, line.end) is not None
    )


def _strip_box(text: str, line: TextLine) -> TextLine:
    """Return the line without the sides of a box of asterisks or bars around it."""
    words = text[line.start : line.end]
    side = words[0]
    if side not in "*|" or len(words) < 5 or not words.endswith(side):
        return line
    inner = words.strip(side).strip()
    start = line.start + words.find(inner)
    return TextLine(start, start + len(inner), line.indent + start - line.start) if inner else line


_MOST_WORDS = 14


def _is_short(words: str) -> bool:
    """Report whether words are few enough for a heading."""
    return len(words) <= _LONGEST and len(words.split()) <= _MOST_WORDS


def _is_capitals(words: str) -> bool:
    """Report whether the first line is in capitals and has a word of three letters."""
    first_line = words.split("\n", 1)[0]
    return first_line.isupper() and any(len(word) >= 3 for word in _WORD.findall(first_line))


def _is_title(words: str) -> bool:
    """Report whether the words of four letters and more begin with capitals, as in titles."""
    long = [word for word in _WORD.findall(words) if len(word) >= 4]
    capital = sum(1 for word in long if word[0].isupper())
    return _is_short(words) and bool(long) and capital >= 0.8 * len(long)


_CENTRED_WITHIN = 6  # columns


def _is_centred(lines: Sequence[TextLine], width: int) -> bool:
    """Report whether each line is in the middle of the text's width."""
    return all(
        line.indent >= 8
        and abs(line.indent + (line.end - line.start) / 2 - width / 2) <= _CENTRED_WITHIN
        for line in lines
    )


def _is_address(text: str, line: TextLine) -> bool:
    """Report whether the line is a web address only."""
    return re.match(r"<?(?:https?://|www\.)\S*$", text[line.start : line.end]) is not None


def _ends_early(text: str, lines: Sequence[TextLine], width: int) -> bool:
    """Report whether the next line's first word would have fitted on the first line."""
    first, second = lines[0], lines[1]
    word = text[second.start : second.end].split(None, 1)[0]
    return first.indent + (first.end - first.start) + 1 + len(word) <= 0.85 * width
