"""Plain text and Markdown: unchanged; plain text gets paragraphs, list items and sections.

Four kinds of lines of plain text are headings, and a doubtful line stays a paragraph: an underlined
line; a numbered title in an ascending sequence ("2. Grant of Patent License. Subject to ..."); a
short line on its own that is centred or in capitals; and a short line that begins with "Chapter 3",
"Appendix A" and the like. Numbered paragraphs without titles are sections too, titled by their
number, where each may hold several paragraphs, as in many licences.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html import unescape
from itertools import pairwise, zip_longest

from colligate.documents.document import Document
from colligate.documents.markdown import OutlineBuilder, split_blocks, split_front_matter
from colligate.documents.reading.formats import suffix_of
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.tree import Basis, Kind, Structure, Tree
from colligate.errors import CorruptFile


def read_markdown(source: SourceFile) -> Document:
    """Read a Markdown file, its HTML as it is shown; its front matter is title and metadata."""
    text = source.text
    if text.lstrip()[:14].lower() == "<!doctype html":
        from colligate.documents.reading.html import read_html

        return read_html(source)
    start, facts = split_front_matter(text)
    if any(mark in text for mark in ("<", "&", "data:")):
        pieces = (_show_piece(source, kind, piece) for kind, piece in split_blocks(text, start))
        text = text[:start] + "".join(pieces)
    return make_document(source, text, title=facts.pop("title", None), metadata=facts)


_HIDDEN = re.compile(
    r"`+[^`\n]*`+"  # code, which stays
    r"|!\[(?P<alt>[^\[\]\n]*)\]\(<?data:[^()\s]*(?: \"[^\"\n]*\")?\)"
    r"|^\[[^\[\]\n]+\]: *<?data:\S*"
    r"|&(?:#\w{1,8}|\w{2,31});(?P<compares>(?<=.&[lg]t;)(?=[\s=\d]))?",
    re.MULTILINE,
)


def _show_piece(source: SourceFile, kind: str, piece: str) -> str:
    tags = piece.lower()
    closed = "<table" in tags and tags.count("<table") == tags.count("</table")
    comment = tags.lstrip().startswith("<!--") and "-->" in tags
    if kind == "html_block" and (closed or comment or 'src="data:' in tags):
        from colligate.documents.reading.html import parse_html

        with suppress(CorruptFile):
            return f"\n{parse_html(source, piece)[0]}\n"
    return piece if kind in ("fence", "code_block") else _HIDDEN.sub(_show_hidden, piece)


def _show_hidden(match: re.Match[str]) -> str:
    """Return a picture's text, or the character that a name means if it marks nothing here."""
    entity = match[0]
    if entity[0] != "&":
        return entity if entity[0] == "`" else match["alt"] or ""
    shown = unescape(entity)
    plain = not shown.isascii() or shown in "&\"'" or match["compares"] is not None
    return shown if plain else entity


_PROSE = {"", ".txt", ".text"}


def read_text(source: SourceFile) -> Document:
    """Read a text file; only prose, and not source code, is searched for headings and a title."""
    prose = suffix_of(source.path) in _PROSE or source.path.name == source.stem
    prose = prose and not source.text.startswith("#!")
    title = _find_title(source.text) if prose else None
    return make_document(source, source.text, tree=partial(text_tree, prose=prose), title=title)


_BEGINNING = 2000  # characters that are searched for a title
_CODE = re.compile(r"^(?:[#;%{<]|//|/\*|\"{3}|'{3})|[^=]=[^=]")  # comments, settings
_NO_TITLE = re.compile(r"[.,;:!?]$|^(?:table of )?contents$", re.IGNORECASE)


def _find_title(text: str) -> str | None:
    """Return the line that a text begins with if it is on its own and written as a title is."""
    first, *rest = _split_blocks(text.lstrip()[:_BEGINNING]) or [[]]
    if len(first) != 1 or not rest or len(first[0].text.split()) < 2:
        return None
    line = first[0].text
    is_other = _CODE.search(line) or _NO_TITLE.search(line) or _KEYWORD.match(line)
    return line if not is_other and _is_title(line) else None


def text_tree(text: str, document_id: str, *, prose: bool = True) -> Tree:
    """Return the tree of a plain text: paragraphs and list items, under sections if it has any."""
    blocks = _split_blocks(text)
    headings = _find_headings(text, blocks) if prose else []
    builder = OutlineBuilder(text, document_id, [level for _, level in headings])
    following = deque(headings)
    items: list[tuple[int, int]] = []  # (indent, node) of the open list items
    for block in blocks:
        lines = block
        while following and following[0][0].start < block[-1].end:
            heading, level = following.popleft()
            _add_lines(builder, [line for line in lines if line.end <= heading.start], items)
            builder.add_heading(heading.start, heading.end, level, heading.title)
            items.clear()
            lines = list(_iter_after(lines, heading.end))
        _add_lines(builder, lines, items)
    if not headings:
        return builder.build(Structure(1.0, Basis.NONE))
    if any(heading.number for heading, _ in headings):
        known = Structure(0.8, Basis.NUMBERING, "headings of plain text, known by their numbers")
    else:
        known = Structure(0.6, Basis.LAYOUT, "headings of plain text, known by their layout")
    return builder.build(known)


@dataclass(frozen=True, slots=True)
class _Line:
    """A line without blanks around it: where it starts, its text, and its indentation."""

    start: int
    text: str
    indent: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


_WORDS = re.compile(r"\S.*")
_Block = Sequence[_Line]
"""Lines without a blank one between them."""


def _split_blocks(text: str) -> list[_Block]:
    """Return the blocks of a text in order; they hold all characters that are not blank."""
    blocks: list[_Block] = []
    lines: list[_Line] = []
    end = -1  # of the last line
    for match in _WORDS.finditer(text):  # blank lines, of which there may be millions, cost nothing
        start = match.start()
        begin = text.rfind("\n", end + 1, start) + 1 or end + 1
        if lines and begin > end + 1:
            blocks.append(lines)
            lines = []
        indent = len(text[begin:start].expandtabs())
        lines.append(_Line(start, match[0].rstrip(), indent))
        end = match.end()
    return [*blocks, lines] if lines else blocks


_ITEM = re.compile(r"(?:[-*+•‣◦·–]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)])[ \t]+\S")


def _add_lines(builder: OutlineBuilder, lines: _Block, items: list[tuple[int, int]]) -> None:
    """Add lines with no heading and no blank line among them: a paragraph, or list items."""
    for i, line in enumerate(lines):
        is_item = _ITEM.match(line.text) is not None
        if i and not is_item:
            continue  # it goes on
        # Indented further than a list item's mark, it belongs to the item.
        while items and items[-1][0] >= line.indent:
            items.pop()
        kind = Kind.LIST_ITEM if is_item else Kind.PARAGRAPH
        node = builder.add_block(kind, line.start, item=items[-1][1] if items else None)
        if is_item:
            items.append((line.indent, node))


def _iter_after(lines: _Block, place: int) -> Iterator[_Line]:
    """Yield the lines after a place; a line around the place is cut there."""
    for line in lines:
        if line.start >= place:
            yield line
        elif line.end > place:
            rest = line.text[place - line.start :].lstrip()
            yield _Line(line.end - len(rest), rest, line.indent)


_FEWEST = 2  # a single heading is as likely a chance line
_WIDEST = 120


def _find_headings(text: str, blocks: Sequence[_Block]) -> list[tuple[_Candidate, int]]:
    """Find the headings of a plain text and their levels, in order; one alone is not trusted."""
    # The text's width in columns: nearly all lines end before it.
    ends = sorted(line.indent + len(line.text) for block in blocks[:2000] for line in block)
    width = min(_WIDEST, ends[int(0.95 * (len(ends) - 1))]) if ends else 0
    found = [c for i, block in enumerate(blocks) for c in _find_candidates(text, block, i, width)]
    kept = _drop_unsure_numbers(found, blocks)
    return list(_assign_levels(kept)) if len(kept) >= _FEWEST else []


_Number = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A heading, perhaps: underlined by a `rule`, or with a `number`, or on its own."""

    block: int
    start: int
    end: int
    title: str
    number: _Number = ()
    titled: bool = True  # else it is the number of a paragraph
    rule: str = ""


_NUMBER = re.compile(r"(?:§\s*)?(\d{1,3}(?:\.\d{1,3}){0,4})(\.|\)|:)?[ \t]+(?=\S)")


def _find_candidates(text: str, block: _Block, index: int, width: int) -> Iterator[_Candidate]:
    reached = 0
    for at, (line, below) in enumerate(zip_longest(block, block[1:])):
        found = None
        if line.start < reached:  # the heading before goes on here
            continue
        if below is not None and _is_ruled(line, below):
            number = _parse_number(_NUMBER.match(line.text))
            rule = below.text[0]
            found = _Candidate(index, line.start, below.end, line.text, number, rule=rule)
        elif at == 0:
            found = _read_first_line(text, block, index, width)
        if found is not None and not _CODE.search(found.title):
            yield found
            reached = found.end


def _parse_number(match: re.Match[str] | None) -> _Number:
    return tuple(map(int, match[1].split("."))) if match else ()


_MOST_LINES = 3

_KEYWORD = re.compile(
    r"(?:chapter|part|section|article|book|appendix|annex|schedule|exhibit|item)\s+"
    r"(?:\d{1,3}|[ivxlc]{1,7}|[a-z])(?:[.:)\s]|$)|(?:appendix|annex|preamble)(?:[.:]|$)",
    re.IGNORECASE,
)
_CONTENTS_LINE = re.compile(r"\.{4}|(?:\. ){3}|\s{3}\d+$")
_ADDRESS = re.compile(r"<?(?:https?://|www\.)\S*$")
_WORD = re.compile(r"[^\W\d_][\w'’-]*")


def _read_first_line(text: str, block: _Block, index: int, width: int) -> _Candidate | None:
    """Return the heading that a block is or begins with, underlined ones aside."""
    first = block[0].text
    if _CONTENTS_LINE.search(first):
        return None
    if match := _NUMBER.match(first):
        return _read_numbered(text, block, index, match, width)
    if len(block) > _MOST_LINES:
        return None
    whole = " ".join(line.text for line in block if not _ADDRESS.match(line.text))
    if not _is_short(whole) or whole.endswith((",", ";")) or _WORD.search(whole) is None:
        return None
    alone = (
        all(_is_centred(line, width) for line in block)
        or (_is_capitals(whole) and not whole.endswith("."))
        or (len(block) == 1 and _KEYWORD.match(whole))
    )
    return _Candidate(index, block[0].start, block[-1].end, whole) if alone else None


_RUN_IN = re.compile(r"([^.]{3,80}?)\.(?=\s|$)")


def _read_numbered(
    text: str, block: _Block, index: int, match: re.Match[str], width: int
) -> _Candidate | None:
    first, number = block[0], _parse_number(match)
    rest = first.text[match.end() :]
    alone = len(block) == 1 and _is_title(rest)
    if len(number) == 1 and match[2] is None and not (alone or _is_capitals(rest)):
        return None  # "12 people came": a bare number needs a mark, or a title
    run_in = _RUN_IN.match(text, first.start + match.end(), block[-1].end)
    titled = run_in is not None and _is_title(run_in[1])
    on_its_own = len(block) == 1 or (_ends_early(block, width) and _is_title(rest))
    goes_on = titled and run_in is not None and run_in.end() < first.end
    if on_its_own and not goes_on and _is_short(first.text) and not first.text.endswith((",", ";")):
        return _Candidate(index, first.start, first.end, first.text, number)
    if titled and run_in is not None:
        title = " ".join(text[first.start : run_in.end()].split())
        return _Candidate(index, first.start, run_in.end(), title, number)
    title = match[0].rstrip()
    return _Candidate(index, first.start, first.start + len(title), title, number, titled=False)


def _drop_unsure_numbers(found: Sequence[_Candidate], blocks: Sequence[_Block]) -> list[_Candidate]:
    """Leave out numbers that do not ascend, and numbered lines that are a list.

    At least half of the numbered titles of one depth must be followed by text: run-in text or
    paragraphs that are not the next number. At least three numbered paragraphs are needed, and a
    third of them must continue in further paragraphs.
    """
    ascending = set(_select_ascending([c for c in found if c.number]))
    ends = [c.block for c in found if c.titled or c in ascending]
    following = dict(pairwise([*ends, len(blocks)]))
    goes_on: dict[tuple[bool, int], list[bool]] = defaultdict(list)
    for c in ascending:
        more = following.get(c.block, len(blocks)) > c.block + 1
        more = more or (c.titled and c.end < blocks[c.block][-1].end)
        goes_on[c.titled, len(c.number)].append(more)
    # A numbered title directly above its subsections is followed by those.
    deepest = max((len(c.number) for c in ascending), default=0)
    sure = {
        (titled, depth)
        for (titled, depth), more in goes_on.items()
        if (titled and (2 * sum(more) >= len(more) or depth < deepest))
        or (not titled and len(more) >= 3 and 3 * sum(more) >= len(more))
    }
    # Among titled clauses ("4.1 Notice.") one without a title is a clause too, not a list item.
    sure |= {(False, depth) for titled, depth in sure if titled and depth > 1}
    kept = {c for c in ascending if (c.titled, len(c.number)) in sure}
    return [c for c in found if not c.number or c in kept]


def _select_ascending(numbered: Sequence[_Candidate]) -> list[_Candidate]:
    """Return the numbers that follow the previous one or begin a new sequence."""
    kept: list[_Candidate] = []
    previous: _Number = ()
    for i, c in enumerate(numbered):
        begins = c.number in ((0,), (1,))
        # A beginning needs a next number, perhaps after a chance one: one is not a sequence.
        goes_on = any(_follows(c.number, each.number) for each in numbered[i + 1 : i + 3])
        if c.rule or (previous and _follows(previous, c.number)) or (begins and goes_on):
            kept.append(c)
            previous = c.number
    return kept


def _follows(previous: _Number, number: _Number) -> bool:
    if len(number) > len(previous):
        return number[:-1] == previous and number[-1] in (0, 1)
    depth = len(number)
    return number[:-1] == previous[: depth - 1] and number[-1] == previous[depth - 1] + 1


def _assign_levels(kept: Sequence[_Candidate]) -> Iterator[tuple[_Candidate, int]]:
    """Yield headings with levels: the title, lines alone or underlined, then numbers by depth."""
    titled = kept[0].block == 0 and not kept[0].number
    top = 2 if titled else 1
    rules: list[str] = []
    base = level = top - 1
    before: _Candidate | None = None
    for i, c in enumerate(kept):
        if c.number:
            if before is not None and not before.number and before.block >= c.block - 1:
                base = level  # they belong to the heading right above, else they are on its level
            level = base + len(c.number)
        elif i == 0 and titled:
            level = 1
        elif c.rule:
            if c.rule not in rules and not (titled and c.rule == kept[0].rule):
                rules.append(c.rule)
            level = top + (rules.index(c.rule) if c.rule in rules else 0)
            base = top - 1
        else:
            level, base = top, top - 1
        yield c, level
        before = c


# The look of a line: underlined, centred, in capitals, short as a title

_LONGEST = 100  # characters of a heading's line
_RULE = re.compile(r"([=\-~^*_#])\1{2,}")


def _is_ruled(line: _Line, below: _Line) -> bool:
    """Report whether the line below underlines this one."""
    length = len(line.text)
    return (
        _RULE.fullmatch(below.text) is not None
        and length <= _LONGEST
        and length / 2 <= len(below.text) <= length + 4
        and abs(line.indent - below.indent) <= 2
        and _WORD.search(line.text) is not None
    )


_MOST_WORDS = 14


def _is_short(words: str) -> bool:
    """Report whether words are few enough for a heading."""
    return len(words) <= _LONGEST and len(words.split()) <= _MOST_WORDS


def _is_capitals(words: str) -> bool:
    """Report whether words are in capitals, one of them of three letters or more."""
    return words.isupper() and any(len(word) >= 3 for word in _WORD.findall(words))


def _is_title(words: str) -> bool:
    """Report whether the words of four letters and more, or all, begin with capitals."""
    found = _WORD.findall(words)
    long = [word for word in found if len(word) >= 4] or found
    capital = sum(1 for word in long if word[0].isupper())
    return _is_short(words) and bool(long) and capital >= 0.8 * len(long)


_CENTRED_WITHIN = 6  # columns


def _is_centred(line: _Line, width: int) -> bool:
    """Report whether the line is in the middle of the text's width."""
    middle = line.indent + len(line.text) / 2
    return line.indent >= 8 and abs(middle - width / 2) <= _CENTRED_WITHIN


def _ends_early(block: _Block, width: int) -> bool:
    """Report whether the next line's first word would have fitted on the first line."""
    word = block[1].text.split(None, 1)[0]
    return block[0].indent + len(block[0].text) + 1 + len(word) <= 0.85 * width
