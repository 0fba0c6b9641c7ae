"""Headings of plain text, found with care: what is in doubt stays a paragraph.

Four kinds count: a line ruled underneath; a numbered title in an ascending sequence
("2. Grant of Patent License. Subject to ..."); a short line standing alone that is centred or
in capitals; and a short line that begins "Chapter 3", "Appendix A" and the like. Numbered
paragraphs without titles count, by their number, where each may hold several paragraphs, as in
many licences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from colligate.documents.tree import Basis, Structure

# The blocks of a plain text: lines that stand together between blank ones.


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line's place in the text, without its end and the blanks around it; its indentation."""

    start: int
    end: int
    indent: int


@dataclass(frozen=True, slots=True)
class TextBlock:
    """Lines without a blank one between them."""

    lines: tuple[TextLine, ...]

    @property
    def start(self) -> int:
        """Where its first character that is not blank stands."""
        return self.lines[0].start

    @property
    def end(self) -> int:
        """Where its last character that is not blank ends."""
        return self.lines[-1].end


def split_blocks(text: str) -> list[TextBlock]:
    """The blocks of a text in order; they hold all its characters that are not blank."""
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


# What a line of plain text looks like: ruled, centred, in capitals, short as a title.

_LONGEST = 100  # characters of a heading's line
_MOST_WORDS = 14
_CENTRED_WITHIN = 6  # columns
_RULE = re.compile(r"([=\-~^*_#])\1{2,}")
WORD = re.compile(r"[^\W\d_][\w'’-]*")


def is_ruled(text: str, line: TextLine, below: TextLine) -> bool:
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


def unboxed(text: str, line: TextLine) -> TextLine:
    """The line without the sides of a box of asterisks or bars drawn around it."""
    words = text[line.start : line.end]
    side = words[0]
    if side not in "*|" or len(words) < 5 or not words.endswith(side):
        return line
    inner = words.strip(side).strip()
    start = line.start + words.find(inner)
    return TextLine(start, start + len(inner), line.indent + start - line.start) if inner else line


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


def is_centred(lines: Sequence[TextLine], width: int) -> bool:
    """Whether each line stands in the middle of the text's width."""
    return all(
        line.indent >= 8
        and abs(line.indent + (line.end - line.start) / 2 - width / 2) <= _CENTRED_WITHIN
        for line in lines
    )


def is_address(text: str, line: TextLine) -> bool:
    """Whether the line is a web address and nothing else."""
    return re.match(r"<?(?:https?://|www\.)\S*$", text[line.start : line.end]) is not None


def ends_early(text: str, lines: Sequence[TextLine], width: int) -> bool:
    """Whether the next line's first word would still have fitted on the first line."""
    first, second = lines[0], lines[1]
    word = text[second.start : second.end].split(None, 1)[0]
    return first.indent + (first.end - first.start) + 1 + len(word) <= 0.85 * width


_MOST_LINES = 3
_FEWEST = 2  # one heading alone is as likely a chance line
_WIDEST = 120

_NUMBER = re.compile(r"(?:§\s*)?(\d{1,3}(?:\.\d{1,3}){0,4})(\.|\)|:)?[ \t]+(?=\S)")
_KEYWORD = re.compile(
    r"(?:chapter|part|section|article|book|appendix|annex|schedule|exhibit|item)\s+"
    r"(?:\d{1,3}|[ivxlc]{1,7}|[a-z])(?:[.:)\s]|$)|(?:appendix|annex|preamble)(?:[.:]|$)",
    re.IGNORECASE,
)
_RUN_IN = re.compile(r"([^.]{3,80}?)\.(?=\s|$)")
_CONTENTS_LINE = re.compile(r"\.{4,}|(?:\. ){3,}|\s{3,}\d+$")


class _Style(Enum):
    RULED = "ruled"
    ALONE = "alone"  # centred, in capitals, or with a keyword
    NUMBERED = "numbered"
    PARAGRAPH = "paragraph"  # a numbered paragraph without a title


@dataclass(frozen=True, slots=True)
class TextHeading:
    """A heading: its place in the text, its level (from 1), its words, and whether numbered."""

    start: int
    end: int
    level: int
    title: str
    numbered: bool


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
    closes: bool = True  # nothing of its block follows it


def structure_of(headings: Sequence[TextHeading]) -> Structure:
    """How sure headings of plain text are."""
    if not headings:
        return Structure(1.0, Basis.NONE)
    if any(heading.numbered for heading in headings):
        return Structure(0.8, Basis.NUMBERING, "headings of plain text, told by their numbers")
    return Structure(0.6, Basis.LAYOUT, "headings of plain text, told by how they are set")


def find_headings(text: str, blocks: Sequence[TextBlock]) -> list[TextHeading]:
    """The headings of a plain text, in order; none unless there are two at least."""
    width = _width(blocks)
    found = [c for i, block in enumerate(blocks) for c in _candidates(text, block, i, width)]
    kept = _without_unsure_numbers(found, blocks)
    return list(_levelled(kept)) if len(kept) >= _FEWEST else []


def _width(blocks: Sequence[TextBlock]) -> int:
    """The width the text is set to: nearly all lines end before it."""
    ends = sorted(
        line.indent + line.end - line.start for block in blocks[:2000] for line in block.lines
    )
    return min(_WIDEST, ends[int(0.95 * (len(ends) - 1))]) if ends else 0


def _candidates(text: str, block: TextBlock, index: int, width: int) -> Iterator[_Candidate]:
    lines = block.lines
    at = 0
    while at < len(lines):
        inner = unboxed(text, lines[at])
        if at + 1 < len(lines) and is_ruled(text, inner, below := unboxed(text, lines[at + 1])):
            mark = text[below.start]
            title = text[inner.start : inner.end]
            number = _number_of(title)
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
            first = _first_of_block(text, block, index, width)
            if first is not None:
                yield first
        at += 1


def _first_of_block(text: str, block: TextBlock, index: int, width: int) -> _Candidate | None:
    """The heading that a block is or begins with, but for ruled ones."""
    line = block.lines[0]
    words = text[line.start : line.end]
    if _CONTENTS_LINE.search(words):
        return None
    match = _NUMBER.match(words)
    if match is not None:
        return _numbered(text, block, index, match, width)
    if len(block.lines) > _MOST_LINES:
        return None
    whole = " ".join(text[x.start : x.end] for x in block.lines if not is_address(text, x))
    if not is_short(whole) or whole.endswith((",", ";")) or WORD.search(whole) is None:
        return None
    alone = (
        is_centred(block.lines, width)
        or (is_capitals(whole) and not whole.endswith("."))
        or (len(block.lines) == 1 and _KEYWORD.match(whole))
    )
    if not alone:
        return None
    return _Candidate(index, block.start, block.end, whole, _Style.ALONE)


def _numbered(
    text: str, block: TextBlock, index: int, match: re.Match[str], width: int
) -> _Candidate | None:
    line = block.lines[0]
    number = tuple(map(int, match[1].split(".")))
    start = line.start
    rest = text[start + match.end() : block.end]
    words = text[start : line.end]
    if len(number) == 1 and match[2] is None and not is_capitals(rest):
        return None  # "12 people came": a bare number needs a mark, or a title in capitals
    ended_early = len(block.lines) == 1 or ends_early(text, block.lines, width)
    if (
        ended_early
        and is_short(words)
        and not words.endswith((",", ";"))
        and (len(block.lines) == 1 or is_title(text[start + match.end() : line.end]))
    ):
        closes = len(block.lines) == 1
        return _Candidate(
            index, start, line.end, words, _Style.NUMBERED, number, "", line.indent, closes
        )
    run_in = _RUN_IN.match(rest)
    if run_in is not None and is_title(run_in[1]):
        end = start + match.end() + run_in.end()
        title = " ".join(text[start:end].split())
        return _Candidate(
            index, start, end, title, _Style.NUMBERED, number, "", line.indent, end == block.end
        )
    end = start + len(match[0].rstrip())
    return _Candidate(
        index, start, end, text[start:end], _Style.PARAGRAPH, number, "", line.indent, False
    )


def _without_unsure_numbers(
    found: Sequence[_Candidate], blocks: Sequence[TextBlock]
) -> list[_Candidate]:
    """Leave out numbers that do not ascend, and numbered lines that are a list.

    Of the numbered titles of one depth at least half must head something: run-in text or
    paragraphs that are not the next number themselves. Of numbered paragraphs, three at least,
    a third must go on in further paragraphs.
    """
    ascending = _ascending([c for c in found if c.number])
    last = len(blocks)
    heads: dict[tuple[_Style, int], list[bool]] = {}
    in_sequence = set(ascending)
    ends = [c.block for c in found if c.style is not _Style.PARAGRAPH or c in in_sequence]
    following = dict(pairwise([*ends, last]))
    for c in ascending:
        more_blocks = following.get(c.block, last) > c.block + 1
        more = more_blocks if c.style is _Style.PARAGRAPH else more_blocks or not c.closes
        heads.setdefault((c.style, len(c.number)), []).append(more)
    # A titled number with its subsections right below heads those.
    deepest = max((len(c.number) for c in ascending), default=0)
    sure = {
        (style, depth)
        for (style, depth), more in heads.items()
        if (style is _Style.NUMBERED and (2 * sum(more) >= len(more) or depth < deepest))
        or (style is _Style.PARAGRAPH and len(more) >= 3 and 3 * sum(more) >= len(more))
    }
    sure_ones = {c for c in ascending if (c.style, len(c.number)) in sure}
    return [c for c in found if not c.number or c in sure_ones]


def _ascending(numbered: Sequence[_Candidate]) -> list[_Candidate]:
    """The numbers each of which follows the one before, or begins a sequence anew."""
    kept: list[_Candidate] = []
    previous: tuple[int, ...] = ()
    for i, c in enumerate(numbered):
        begins = c.number in ((0,), (1,))
        # A beginning counts if it goes on; an only number is no sequence.
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


def _levelled(kept: Sequence[_Candidate]) -> Iterator[TextHeading]:
    """Levels: the title, then what stands alone or is ruled, then numbers by their depth.

    Numbers that begin right below a heading without a number belong to it; otherwise they
    stand beside it.
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


def _number_of(words: str) -> tuple[int, ...]:
    match = _NUMBER.match(words)
    return tuple(map(int, match[1].split("."))) if match else ()
