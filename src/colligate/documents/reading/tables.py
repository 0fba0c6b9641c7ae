"""Tables: separated values, and the tree of a text that is nothing but tables.

A parser of Markdown takes minutes, and gigabytes, for a million rows, so none sees them.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from itertools import islice, repeat

from colligate.documents.document import Document
from colligate.documents.markdown import OutlineBuilder, format_table
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.tree import Basis, Kind, Structure, Tree

_TABS = "text/tab-separated-values"
_SEPARATORS = ",;\t|"
_SAMPLED = 20  # rows that tell which separator a file has


def read_separated(source: SourceFile) -> Document:
    """Read comma-separated or tab-separated values as one table; its first row is the head."""
    csv.field_size_limit(max(csv.field_size_limit(), source.limits.text_bytes))
    separator = "\t" if source.format.media_type == _TABS else _find_separator(source.text)
    rows = _iter_rows(source.text, separator)
    return make_document(source, format_table(rows, rule=" --- ") + "\n", tree=table_tree)


def _find_separator(text: str) -> str:
    """Return what cuts most of the first rows into the same number of cells."""

    def rate(separator: str) -> int:
        rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        widths = Counter(map(len, islice(rows, _SAMPLED)))
        return max((count for width, count in widths.items() if width > 1), default=0)

    return max(_SEPARATORS, key=rate)


def _iter_rows(text: str, separator: str) -> Iterator[list[str]]:
    """Yield the rows from the first to the last with text; the number of a row stays true."""
    blank = 0  # rows without text since the last with text
    started = False
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
        cells = [" ".join(cell.split()) for cell in row]
        if any(cells):
            yield from repeat([""], blank)
            yield cells
            blank, started = 0, True
        elif started:
            blank += 1


_BLOCK = re.compile(
    r"^(?:\#\#[ ](?P<heading>.*)|(?P<table>\|.*(?:\n\|.*)*+)|\S.*(?:\n(?!\#\#[ ]|\|)\S.*)*+)",
    re.MULTILINE | re.VERBOSE,
)
_ESCAPED = re.compile(r"\\(\W)")


def table_tree(text: str, document_id: str) -> Tree:
    """Return the tree of tables, each under the heading (`##`) of its sheet, if it has one."""
    builder = OutlineBuilder(text, document_id, levels=())
    basis = Basis.NONE
    for block in _BLOCK.finditer(text):
        if block["heading"] is not None:
            title = " ".join(_ESCAPED.sub(r"\1", block["heading"]).split())
            builder.add_heading(block.start(), block.end(), 2, title)
            basis = Basis.MARKUP
        else:
            builder.add_block(
                Kind.PARAGRAPH if block["table"] is None else Kind.TABLE, block.start()
            )
    return builder.build(Structure(1.0, basis))
