"""reStructuredText, Org and AsciiDoc: to Markdown, line by line.

Titles, headings, code, tables, lists, notes and links are what each format says they are; comments
and settings are left out, and what a format keeps in other files is named.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from textwrap import dedent

from colligate.documents.document import Document
from colligate.documents.markdown import format_code, format_table
from colligate.documents.reading.source import SourceFile, make_document


class _Pages:
    """Markdown as it is written: text, whose marks are rewritten, and code and tables."""

    def __init__(self, rewriting: Sequence[tuple[str, str]]) -> None:
        self.facts: dict[str, str] = {}
        self._rewriting = [(re.compile(found), new) for found, new in rewriting]
        self._parts: list[str] = []
        self._lines: list[str] = []

    def add(self, *lines: str) -> None:
        """Add lines of text."""
        self._lines += lines

    def add_heading(self, level: int, title: str) -> None:
        """Add a heading; the title of the document is level 1."""
        self.add("", f"{'#' * min(level, 6)} {title.strip()}", "")

    def add_code(self, lines: Sequence[str]) -> None:
        """Add lines that stay as they are."""
        if any(map(str.strip, lines)):
            self._add_block(format_code(dedent("\n".join(lines)).strip("\n")))

    def add_table(self, rows: Sequence[Sequence[str]]) -> None:
        """Add a table, its first row the head."""
        self._add_block(format_table([[self._rewrite(cell) for cell in row] for row in rows]))

    def add_note(self, name: str, text: str) -> None:
        """Add the text of a note."""
        self.add("", f"[^{name}]: {text}", "")

    def make(self, source: SourceFile) -> Document:
        """Return the document, under its title if its head states one."""
        self._add_block("")
        text = "\n\n".join(self._parts) + "\n"
        if title := self.facts.pop("title", None):
            by = "\n\n".join(filter(None, map(self.facts.get, ("author", "authors", "date"))))
            text = f"# {title}\n\n{by}\n\n{text}"
        text = text if text.strip() else source.text  # nothing but comments
        return make_document(source, text, title=title, metadata=self.facts)

    def _add_block(self, block: str) -> None:
        text = re.sub(r"\n\s*\n", "\n\n", "\n".join(self._lines)).strip("\n")
        self._parts += filter(None, [self._rewrite(text), block])
        self._lines = []

    def _rewrite(self, text: str) -> str:
        for found, new in self._rewriting:
            text = found.sub(new, text)
        return text


_ORG_INLINE = [
    (r"\[\[([^\[\]\n]{1,2000})\]\[([^\[\]\n]{1,2000})\]\]", r"[\2](\1)"),
    (r"\[\[([^\[\]\n]{1,2000})\]\]", r"\1"),
    (r"(?m)^\[fn:([\w-]{1,60})\]", r"[^\1]:"),
    (r"\[fn:([\w-]{1,60})\]", r"[^\1]"),
]
_ORG_KEY = re.compile(r"\s*#\+(\w+)(?::\s*(.*)|\s.*)?$")
_ORG_HEADING = re.compile(r"(\*+)[ \t]+(.+)")
_ORG_DRAWER = re.compile(r"\s*:[\w-]+:\s*$")
_ORG_FACTS = ("title", "author", "date", "language", "description", "keywords", "filetags")
_ORG_CODE = ("src", "example", "export", "comment")


def read_org(source: SourceFile) -> Document:
    """Read an Org file; its settings give title, author, date and tags."""
    pages, lines = _Pages(_ORG_INLINE), iter(source.text.splitlines())
    rows: list[str] = []
    for line in lines:
        if line.lstrip().startswith("|"):
            rows.append(line)
            continue
        _add_rows(pages, rows, "|-")
        if (key := _ORG_KEY.match(line)) is not None:
            name, value = key[1].lower(), key[2]
            if name.startswith("begin_") and name[6:] in _ORG_CODE:
                block = list(_take_until(lines, f"#+end_{name[6:]}"))
                if name != "begin_comment":
                    pages.add_code(block)
            elif name == "include":
                source.warn(f"another file is not read as part of it: {value}")
            elif name == "caption":
                pages.add("", value or "", "")
            elif value and name in _ORG_FACTS:
                pages.facts.setdefault(name, value)
        elif (heading := _ORG_HEADING.match(line)) is not None:
            pages.add_heading(len(heading[1]) + ("title" in pages.facts), heading[2])
        elif not (line.startswith("# ") or line == "#" or _ORG_DRAWER.match(line)):
            pages.add(line)
    _add_rows(pages, rows, "|-")
    return pages.make(source)


def _add_rows(pages: _Pages, rows: list[str], rule: str) -> None:
    """Add rows between bars as a table, and forget them."""
    if cells := [row.strip() for row in rows if not row.strip().startswith(rule)]:
        pages.add_table([[c.strip() for c in row.strip("|").split("|")] for row in cells])
    rows.clear()


def _take_until(lines: Iterator[str], end: str) -> Iterator[str]:
    for line in lines:
        if line.strip().lower() == end:
            return
        yield line


_ADOC_INLINE = [
    (r"(?:link:|xref:)([^\s\[\]]{1,2000})\[([^\[\]\n]{1,2000})\]", r"[\2](\1)"),
    (r"(https?://[^\s\[\]]{1,2000})\[([^\[\]\n]{1,2000})\]", r"[\2](\1)"),
    (r"<<[^<>,\n]{1,200},([^<>\n]{1,200})>>", r"\1"),
    (r"<<([^<>\n]{1,200})>>", r"\1"),
    (r"image::?[^\s\[\]]{1,500}\[([^\[\]\n]{0,500})\]", r"\1"),
]
_ADOC_HEADING = re.compile(r"(={1,6})[ \t]+(\S.*)")
_ADOC_SETTING = re.compile(r":([\w-]+):[ \t]*(.*)")
_ADOC_FENCE = re.compile(r"(-{4,}|\.{4,}|/{4,}|\+{4,}|`{3,})(?:\w*)\s*$")
_ADOC_FRAME = re.compile(r"(?:={4,}|\*{4,}|_{4,}|--|\+)\s*$|\[.*\]\s*$|(?:ifdef|ifndef|endif)::")
_ADOC_ITEM = re.compile(r"\s*(?:(\*{1,5}|-)|(\.{1,5}))[ \t]+(?=\S)")
_ADOC_CELL = re.compile(r"(?<!\\)(?:(?:^|(?<=\s))(?:[\d.]+[+*]|[<^>])[\w.<^>+]*)?\|")
_ADOC_COLUMNS = re.compile(r'\bcols=(?:"([^"]{1,500})"|([\d*]{1,9}))')
_ADOC_TIMES = re.compile(r"\s*(\d{1,2})\*")
_ADOC_SPAN = re.compile(r"\d[+*][\w.<^>]{0,5}\|")  # a cell over several, or repeated
_ADOC_NAMED = re.compile(r"\{([\w-]{1,60})\}")
_LONGEST_SETTING = 200  # characters: it may be named on every line
_ADOC_NOTE = re.compile(r"footnote:[\w-]*\[([^\[\]\n]{1,2000})\]")


def read_asciidoc(source: SourceFile) -> Document:
    """Read an AsciiDoc file; its header gives title, author and date."""
    pages, lines = _Pages(_ADOC_INLINE), iter(source.text.splitlines())
    notes: list[str] = []
    settings: dict[str, str] = {}
    header = [""]  # what its lines below the title are
    given = ""  # the attributes of what comes

    def number(note: re.Match[str]) -> str:
        notes.append(note[1])
        return f"[^{len(notes)}]"

    for written in lines:
        line = _ADOC_NOTE.sub(number, written)
        line = _ADOC_NAMED.sub(lambda named: settings.get(named[1], named[0]), line)
        heading = _ADOC_HEADING.match(line)
        if heading is not None and len(heading[1]) == 1 and "title" not in pages.facts:
            pages.facts["title"], header = heading[2], ["author", "date"]
        elif setting := _ADOC_SETTING.match(line):
            if len(setting[2]) <= _LONGEST_SETTING:
                settings[setting[1]] = setting[2]
            if setting[1] in ("author", "revdate", "keywords", "description"):
                pages.facts[setting[1].removeprefix("rev")] = setting[2]
        elif heading is not None:
            pages.add_heading(len(heading[1]), heading[2])
        elif fence := _ADOC_FENCE.match(line):
            block = list(_take_until(lines, fence[1]))
            if fence[1][0] != "/":
                pages.add_code(block)
        elif line.startswith("|==="):
            _add_cells(pages, list(_take_until(lines, line.strip())), given)
        elif line.startswith("include::"):
            source.warn(f"another file is not read as part of it: {line[9:].partition('[')[0]}")
        elif header[0] and line.strip():
            pages.facts.setdefault(header.pop(0), line.strip())
            header = header or [""]
        elif item := _ADOC_ITEM.match(line):
            depth = len(item[1] or item[2]) - 1
            mark = "- " if item[1] else "1. "
            pages.add(f"{'   ' * depth}{mark}{line[item.end() :]}")
        elif not (line.startswith("//") or _ADOC_FRAME.match(line)):
            header = [""] if not line.strip() else header
            title = re.match(r"\.(?=[^\s.])", line)
            pages.add(*(["", line[1:], ""] if title else [line]))
        given = line if line.startswith("[") else given * (not line.strip() or line[0] == ".")
    for at, note in enumerate(notes, 1):
        pages.add_note(str(at), note)
    return pages.make(source)


def _add_cells(pages: _Pages, lines: Sequence[str], given: str) -> None:
    """Add a table as wide as its attributes say, else as its first line; a bar begins each cell."""
    text = "\n".join(lines).strip()
    cells = [" ".join(cell.replace("\\|", "|").split()) for cell in _ADOC_CELL.split(text)[1:]]
    if not cells or _ADOC_SPAN.search(text):  # values between commas, or cells that span others
        return pages.add_code(lines)
    stated = _ADOC_COLUMNS.search(given)
    first = _ADOC_CELL.findall(text.partition("\n")[0])
    columns = (stated[1] or stated[2]).split(",") if stated else ()
    width = sum(int(each[1]) if each else 1 for each in map(_ADOC_TIMES.match, columns))
    width = width or len(first) or 1
    pages.add_table([cells[at : at + width] for at in range(0, len(cells), width)])


_RST_INLINE = [
    (r"``([^`\n]{1,2000})``", r"`\1`"),
    (r":math:`([^`]{1,2000})`", r"$\1$"),
    (r":[\w:+.-]{1,60}:`~?([^`<]{1,2000}?)(?:\s*<[^`<>]{1,500}>)?`", r"\1"),
    (r"(?<!`)`([^`<]{1,2000}?)\s*<([^`<>\s]{1,2000})>`__?", r"[\1](\2)"),
    (r"(?<!`)`([^`\n]{1,2000})`__?(?!\w)", r"\1"),
    (r"\[([#*\w.-]{1,60})\]_(?!\w)", r"[^\1]"),
]
_RST_RULE = re.compile(r"([!-/:-@\[-`{-~])\1{2,}\s*$")
_RST_EXPLICIT = re.compile(r"\.\.(?:[ \t]+(.*)|$)")
_RST_DIRECTIVE = re.compile(r"(?:\|[^|]+\|\s*)?([\w:+.-]+?)::(?:\s+(.*)|$)")
_RST_NOTE = re.compile(r"\[([#*\w.-]{1,60})\]\s*(.*)")
_RST_FIELD = re.compile(r":([A-Za-z][\w -]*):(?:[ \t]+(.*)|$)")
_RST_CODE = ("code", "code-block", "sourcecode", "parsed-literal", "math", "raw", "doctest")
_RST_FILES = ("include", "literalinclude")
_RST_COLUMNS = re.compile(r"=+(?:[ \t]+=+)+\s*$")
_RST_DEEPEST = 20


def read_rst(source: SourceFile) -> Document:
    """Read reStructuredText; its first field list gives author, date and the like."""
    pages = _Pages(_RST_INLINE)
    _write_rst(pages, source.text.expandtabs(8).splitlines(), [], source.warn)
    return pages.make(source)


def _write_rst(
    pages: _Pages,
    lines: Sequence[str],
    styles: list[str],
    warn: Callable[[str], None],
    depth: int = 0,
) -> None:
    """Write a body; `styles` are the underlines of headings so far: a directive has no headings."""
    at = 0
    while at < len(lines):
        line, below = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
        ruled = lines[at + 2] if at + 2 < len(lines) and _RST_RULE.match(line) else ""
        if not depth and below.strip() and ruled[:1] == line[:1] and _RST_RULE.match(ruled):
            pages.add_heading(_find_level(styles, line[0] * 2), below)
            at += 3
        elif not depth and line[:1].strip() and _underlines(below, line):
            pages.add_heading(_find_level(styles, below[0]), line)
            at += 2
        elif (explicit := _RST_EXPLICIT.match(line)) is not None:
            at, body = _take_indented(lines, at + 1)
            _write_explicit(pages, explicit[1] or "", body, warn, depth)
        elif line.startswith(("+-", "+=")) or _RST_COLUMNS.match(line):
            at, table = _take_table(lines, at)
            pages.add_table(_read_grid(table) if line[0] == "+" else _read_columns(table))
        elif not depth and not styles[1:] and (field := _RST_FIELD.match(line)):
            at, body = _take_indented(lines, at + 1)
            value = " ".join(" ".join([field[2] or "", *body]).split())
            pages.facts.setdefault(field[1].lower(), value)
            pages.add(f"{field[1]}: {value}", "")
        elif line.rstrip().endswith("::"):
            said = line.rstrip().removesuffix("::")
            pages.add(f"{said}:" if said.strip() and not said.endswith(" ") else said)
            at += 1
            if not below.strip():
                at, body = _take_indented(lines, at, len(line) - len(line.lstrip()))
                pages.add_code(body)
        else:
            pages.add(re.sub(r"^\s*\|\s", "", line))  # of a block of lines
            at += 1


def _underlines(rule: str, title: str) -> bool:
    return bool(_RST_RULE.match(rule)) and 2 * len(rule.rstrip()) >= len(title.rstrip())


def _find_level(styles: list[str], style: str) -> int:
    """Return the level of a heading: new underlines are deeper than all before."""
    if style not in styles:
        styles.append(style)
    return styles.index(style) + 1


def _write_explicit(
    pages: _Pages, said: str, body: Sequence[str], warn: Callable[[str], None], depth: int
) -> None:
    """Write what follows two dots: a note or a directive; comments and targets are left out."""
    if (note := _RST_NOTE.match(said)) is not None:
        pages.add_note(note[1], " ".join(" ".join([note[2], *body]).split()))
        return
    if (directive := _RST_DIRECTIVE.match(said)) is None:
        return
    name, argument = directive[1].rpartition(":")[2], directive[2] or ""
    if name in _RST_FILES:
        warn(f"another file is not read as part of it: {argument}")
        return
    inside = dedent("\n".join(body)).splitlines()
    while inside and (option := _RST_FIELD.match(inside[0])):
        inside.pop(0)
        if option[1] == "alt":
            argument = option[2] or ""
    if name in _RST_CODE:
        pages.add_code([*([argument] if name == "math" else []), *inside])
        return
    pages.add("", argument if name in ("image", "figure") else f"{name}: {argument}", "")
    if depth < _RST_DEEPEST:
        _write_rst(pages, inside, [], warn, depth + 1)
    else:
        pages.add(*inside)
    pages.add("")


def _take_indented(lines: Sequence[str], at: int, indent: int = 0) -> tuple[int, list[str]]:
    """Return where the lines that are indented further end, and these lines."""
    end = last = at
    while end < len(lines):
        line = lines[end]
        if line.strip():
            if len(line) - len(line.lstrip()) <= indent:
                break
            last = end + 1
        end += 1
    return last, list(lines[at:last])


def _take_table(lines: Sequence[str], at: int) -> tuple[int, list[str]]:
    """Return where a table ends, and its lines: a blank line ends it, but not under its head."""
    end = at + 1
    while end < len(lines) and (lines[end].strip() or lines[end - 1] != lines[at]):
        end += 1
        if lines[end - 1] == lines[at] and end - at > 2 and lines[end : end + 1] in ([], [""]):
            break
    return end, list(lines[at:end])


def _read_grid(table: Sequence[str]) -> list[list[str]]:
    """Return the rows of a table that is drawn with +, - and |."""
    rows: list[list[str]] = []
    new = True
    for line in table:
        if line.startswith(("+-", "+=")):
            new = True
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not new:
            pairs = zip_longest(rows.pop(), cells, fillvalue="")
            cells = [f"{above} {cell}".strip() for above, cell in pairs]
        rows.append(cells)
        new = False
    return rows


def _read_columns(table: Sequence[str]) -> list[list[str]]:
    """Return the rows of a table whose columns are as wide as the rules over them."""
    starts = [match.start() for match in re.finditer(r"=+", table[0])]
    rows: list[list[str]] = []
    for line in table:
        if set(line) <= set("=- \t"):
            continue
        cells = [line[a:b].strip() for a, b in zip_longest(starts, starts[1:])]
        if rows and not cells[0]:  # it continues the row above
            pairs = zip(rows.pop(), cells, strict=True)
            cells = [f"{above} {cell}".strip() for above, cell in pairs]
        rows.append(cells)
    return rows
