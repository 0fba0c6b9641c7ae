"""Plain text: unchanged, with paragraphs between blank lines and sections where it has them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial

from colligate.documents.document import Document
from colligate.documents.markdown import INTRODUCTION
from colligate.documents.reading.formats import suffix_of
from colligate.documents.reading.headings import (
    TextBlock,
    TextHeading,
    TextLine,
    find_headings,
    split_blocks,
    structure_of,
)
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.tree import Kind, Structure, Tree, TreeBuilder

_PROSE = {"", ".txt", ".text"}


def read_text(source: SourceFile) -> Document:
    """Read a text file; only prose, and not source code, is searched for headings."""
    prose = suffix_of(source.path) in _PROSE or source.path.name == source.stem
    return make_document(source, source.text, tree=partial(text_tree, prose=prose))


def text_tree(text: str, document_id: str, *, prose: bool = True) -> Tree:
    """Return the tree of a plain text: paragraphs and list items, under sections if it has any.

    As in a Markdown tree, text before the first heading goes into a synthetic introduction,
    and so does text between the document's title and the first section.
    """
    blocks = split_blocks(text)
    headings = find_headings(text, blocks) if prose else []
    return _TextTreeBuilder(text, document_id, headings).build(blocks, structure_of(headings))


_ITEM = re.compile(r"(?:[-*+•‣◦·–]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,4})[.)])[ \t]+\S")


class _TextTreeBuilder:
    """Builds the tree in one pass; a node closes when one outside it begins, or at the end."""

    def __init__(self, text: str, document_id: str, headings: Sequence[TextHeading]) -> None:
        self._text = text
        self._headings = headings
        self._builder = TreeBuilder(document_id)
        root = self._builder.add(Kind.ROOT, 0, len(text), None)
        self._open = [(0, root)]  # (level, node) of the open sections
        self._items: list[tuple[int, int]] = []  # (indent, node) of the open list items
        self._end = 0  # of the latest content
        levels = [heading.level for heading in headings]
        self._titled = len(levels) > 1 and levels[0] < min(levels[1:])
        self._lead = bool(headings)

    def build(self, blocks: Sequence[TextBlock], structure: Structure) -> Tree:
        """Place all blocks, then close all open nodes."""
        headings = iter(self._headings)
        heading = next(headings, None)
        for block in blocks:
            lines = list(block.lines)
            while heading is not None and heading.start < block.end:
                before = [line for line in lines if line.end <= heading.start]
                self._add_content(before)
                self._add_heading(heading)
                lines = list(_iter_after(lines, heading.end, self._text))
                heading = next(headings, None)
            self._add_content(lines)
        self._close_items(-1)
        self._close_sections(1)
        return self._builder.build(structure)

    def _add_heading(self, heading: TextHeading) -> None:
        self._close_items(-1)
        self._close_sections(heading.level)
        place = (heading.start, heading.end)
        parent = self._open[-1][1]
        section = self._builder.add(
            Kind.SECTION, *place, parent, level=heading.level, title=heading.title, heading=place
        )
        self._open.append((heading.level, section))
        self._end = heading.end
        self._lead, self._titled = self._titled, False

    def _add_content(self, lines: Sequence[TextLine]) -> None:
        """Add lines with no heading and no blank line among them: a paragraph, or list items."""
        starts = [i for i, line in enumerate(lines) if self._is_item(line)]
        if not lines:
            return
        if not starts:
            self._add_paragraph(lines)
            return
        if starts[0] > 0:
            self._add_paragraph(lines[: starts[0]])
        for start, stop in zip(starts, [*starts[1:], len(lines)], strict=True):
            self._add_item(lines[start:stop])

    def _is_item(self, line: TextLine) -> bool:
        return _ITEM.match(self._text, line.start, line.end) is not None

    def _add_paragraph(self, lines: Sequence[TextLine]) -> None:
        # Indented further than a list item's mark, it belongs to the item.
        self._close_items(lines[0].indent)
        parent = self._items[-1][1] if self._items else self._current_section()
        self._add(Kind.PARAGRAPH, lines, parent)

    def _add_item(self, lines: Sequence[TextLine]) -> None:
        self._close_items(lines[0].indent)
        parent = self._items[-1][1] if self._items else self._current_section()
        self._items.append((lines[0].indent, self._add(Kind.LIST_ITEM, lines, parent)))

    def _add(self, kind: Kind, lines: Sequence[TextLine], parent: int) -> int:
        self._end = lines[-1].end
        return self._builder.add(kind, lines[0].start, self._end, parent)

    def _current_section(self) -> int:
        level, section = self._open[-1]
        if not self._lead:
            return section
        self._lead = False
        introduction = self._builder.add(
            Kind.SECTION, self._end, self._end, section, level=level + 1, title=INTRODUCTION
        )
        self._open.append((level + 1, introduction))
        return introduction

    def _close_items(self, indent: int) -> None:
        while self._items and self._items[-1][0] >= indent:
            self._builder.close(self._items.pop()[1], self._end)

    def _close_sections(self, level: int) -> None:
        while self._open[-1][0] >= level:
            self._builder.close(self._open.pop()[1], self._end)


def _iter_after(lines: Sequence[TextLine], place: int, text: str) -> Iterator[TextLine]:
    """Yield the lines after a place; a line around the place is cut there."""
    for line in lines:
        if line.start >= place:
            yield line
        elif line.end > place:
            rest = text[place : line.end]
            start = line.end - len(rest.lstrip())
            if start < line.end:
                yield TextLine(start, line.end, line.indent)
