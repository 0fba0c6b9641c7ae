"""Markdown to a tree: headings nest by level, blocks go under them, and no text is lost.

A block ends where the next one begins, blanks trimmed. So every character that is not blank is in
a heading or in a content node: quote marks, rules, raw HTML and link definitions too.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

from colligate.documents.document import Document, clean_text
from colligate.documents.span import Span
from colligate.documents.tree import Basis, Kind, Node, Structure, Tree, TreeBuilder

# Deeper lists and quotes (two levels a list, one a quote) stay text of the innermost one, since
# the parser recurses.
_MAX_NESTING = 60

_PARSER = (
    # Only titles need inline parsing, and link definitions must stay text.
    MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    .enable(["table", "strikethrough"])
    .disable(["inline", "text_join", "reference"])
)
_LONGEST_FRONT = 20_000  # characters
_FRONT_MATTER = re.compile(
    r"""\s*(?:---[ \t]*\r?\n(?P<yaml>.*?)^(?:---|\.\.\.)
    |\+\+\+[ \t]*\r?\n(?P<toml>.*?)^\+\+\+
    |(?P<json>\{\s*".*?^\}))[ \t]*(?:\r?\n|\Z)
    |(?P<pandoc>%[^\n]+\n(?:%[^\n]*\n){1,2})""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


def split_front_matter(text: str) -> tuple[int, dict[str, str]]:
    """Return where the text after the front matter begins, and what that says: 0 and {} without."""
    match = _FRONT_MATTER.match(text[:_LONGEST_FRONT])
    if match is None or match.lastgroup is None:
        return 0, {}
    given = _load_facts(match.lastgroup, match[match.lastgroup])
    return (match.end(), _flatten_facts(given)) if given else (0, {})


def _load_facts(kind: str, written: str) -> dict[str, Any]:
    """Return a mapping in a format of front matter; {} if it is none."""
    if kind == "pandoc":
        lines = (line[1:].strip() for line in written.splitlines())
        return dict(zip(("title", "author", "date"), lines, strict=False))
    try:
        if kind == "yaml":
            found = yaml.load(written, yaml.BaseLoader)  # it makes nothing but texts
        else:
            found = json.loads(written) if kind == "json" else tomllib.loads(written)
    except (yaml.YAMLError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _flatten_facts(given: Mapping[Any, Any]) -> dict[str, str]:
    """Return facts as texts; lists of words are joined by semicolons."""
    facts = {}
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if all(isinstance(each, str | int | float | date) for each in values):
            joined = "; ".join(" ".join(str(each).split()) for each in values)
            facts[clean_text(str(name)).lower()] = joined
    return facts


def markdown_tree(text: str, document_id: str, *, structure: Structure | None = None) -> Tree:
    """Return the tree of a Markdown text, with spans over `text` as given.

    Headings nest under the nearest shallower one before them, whatever levels are skipped;
    those inside lists and quotes are content. An underlined ("setext") heading of more than
    two lines or 200 characters is a paragraph with a rule under it.

    The text before the first heading goes into a synthetic section, "Introduction". So does
    the text between the document's title and the next heading (the first heading is the title if
    others follow and all of them are deeper). Front matter is a code block under the root; facts
    between two rules are no heading.
    Without headings, the blocks are children of the root and the structure's basis is `NONE`;
    `structure` is that of the headings (default: markup, sure).
    """
    body, _ = split_front_matter(text)
    tokens = _PARSER.parse(text[body:])
    levels = [_level(token) for i, token in enumerate(tokens) if _is_heading(tokens, i)]
    if not levels:
        structure = Structure(1.0, Basis.NONE)
    builder = _MarkdownTreeBuilder(text, document_id, body, levels)
    builder.read(tokens)
    return builder.build(structure or Structure(1.0, Basis.MARKUP))


def split_blocks(text: str, start: int = 0) -> Iterator[tuple[str, str]]:
    """Yield a text from `start` in pieces, each with its token's type if it is code or HTML."""
    lines = [start, *(m.end() for m in _LINE_END.finditer(text, start)), len(text)]
    for token in _PARSER.parse(text[start:]):
        if (token.type, token.level) == ("html_block", 0) or token.type in ("fence", "code_block"):
            begin, end = (lines[line] for line in token.map or ())
            yield "", text[start:begin]
            yield token.type, text[begin:end]
            start = end
    yield "", text[start:]


def own_span(document: Document, node: Node) -> Span | None:
    """Return a node's own text, trimmed, if any: a heading, or content before its first child."""
    if node.kind in (Kind.ROOT, Kind.SECTION):
        return node.heading
    start, end = node.span.start, node.span.end
    if node.children:
        end = document.tree.nodes[node.children[0]].span.start
    end = start + len(document.text[start:end].rstrip())
    return Span(document.id, start, end) if end > start else None


_FIGURE = re.compile(r"[-\u2212\u2013]?\d")


def superscript_mark(before: str, superscript: str) -> str:
    """Return "^" if a superscript figure follows a figure: 10<sup>6</sup> is not 106; else ""."""
    return "^" if before[-1:].isdigit() and _FIGURE.match(superscript) else ""


def format_table(rows: Iterable[Sequence[str]], *, rule: str = "---") -> str:
    """Return a Markdown table, its first row the head, as wide as the widest; "" without cells."""
    lines: list[str] = []
    first = width = 0
    for row in rows:
        first, width = first if lines else len(row), max(width, len(row))
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    if not width:
        return ""
    lines[0] += "  |" * (width - first)
    lines.insert(1, "|" + f"{rule}|" * width)
    return "\n".join(lines)


def format_code(code: str) -> str:
    """Return code between fences that are longer than any in it."""
    longest = max(map(len, re.findall("`{3,}", code)), default=2)
    return f"{'`' * (longest + 1)}\n{code}\n{'`' * (longest + 1)}"


INTRODUCTION = "Introduction"
# A heading that is content is one inside a list or a quote.
_CONTENT = dict.fromkeys(("paragraph_open", "heading_open", "html_block", "hr"), Kind.PARAGRAPH)
_CONTENT |= {"fence": Kind.CODE, "code_block": Kind.CODE, "table_open": Kind.TABLE}
_LINE_END = re.compile(r"\r\n?|\n")
_NOT_BLANK = re.compile(r"\S")
_LIST_MARK = re.compile(r"[ \t>]*(?:[-+*]|\d{1,9}[.)])[ \t]*")


class OutlineBuilder(TreeBuilder):
    """Builds a tree in one pass, from headings and blocks in their order.

    A node closes where the next one outside it begins, blanks trimmed. `levels` are those of all
    headings to come; they tell which text belongs to an introduction.
    """

    def __init__(self, text: str, document_id: str, levels: Sequence[int]) -> None:
        super().__init__(document_id)
        self._text = text
        root = self.add(Kind.ROOT, (0, len(text)), None)
        self._open = [root]  # from the root to the latest node
        self._sections = [(0, root)]  # (level, node) of the open sections
        self._introduction: int | None = None
        self._trim = (0, 0)  # the last result of _trim_end
        self._titled = len(levels) > 1 and levels[0] < min(levels[1:])
        self._lead = bool(levels)  # text here belongs to an introduction

    def add_heading(self, start: int, end: int, level: int, title: str) -> None:
        """Begin the section of a heading."""
        while self._sections[-1][0] >= level:
            self._sections.pop()
        facts = {"level": level, "title": title, "heading": (start, self._trim_end(end))}
        section = self._open_node(Kind.SECTION, start, self._sections[-1][1], **facts)
        self._sections.append((level, section))
        self._lead, self._titled, self._introduction = self._titled, False, None

    def add_block(self, kind: Kind, start: int, *, item: int | None = None) -> int:
        """Add a block to an open list item, or to the section; return its node."""
        return self._open_node(kind, start, self._find_section(start) if item is None else item)

    def build(self, structure: Structure) -> Tree:
        """Close all open nodes and return the tree."""
        self._close_to(self._open[0], len(self._text))
        return super().build(structure)

    def _open_node(self, kind: Kind, start: int, parent: int, **facts: Any) -> int:
        """Add a node that is closed later, with its level, title and heading."""
        self._close_to(parent, start)
        node = self.add(kind, (start, start), parent, **facts)
        self._open.append(node)
        return node

    def _close_to(self, node: int, end: int) -> None:
        """Close all open nodes inside `node`."""
        end = self._trim_end(end)
        while self._open[-1] != node:
            self.close(self._open.pop(), end)

    def _find_section(self, start: int) -> int:
        """Return the node of a block outside lists: the introduction or the section."""
        level, section = self._sections[-1]
        if not self._lead:
            return section
        if self._introduction is None:
            facts = {"level": level + 1, "title": INTRODUCTION}
            self._introduction = self._open_node(Kind.SECTION, start, section, **facts)
        return self._introduction

    def _trim_end(self, end: int) -> int:
        """Return `end` moved back over blanks."""
        if self._trim[0] != end:  # many nodes may close at the same place
            trimmed = end
            while trimmed and self._text[trimmed - 1].isspace():
                trimmed -= 1
            self._trim = (end, trimmed)
        return self._trim[1]


class _MarkdownTreeBuilder(OutlineBuilder):
    """Builds the tree of the blocks that the parser of Markdown finds."""

    def __init__(self, text: str, document_id: str, body: int, levels: Sequence[int]) -> None:
        super().__init__(text, document_id, levels)
        self._lines = [body, *(m.end() for m in _LINE_END.finditer(text, body))]
        self._items: list[tuple[int, int]] = []  # (node, where its text begins) of open list items
        self._quote: int | None = None  # where a quote begins that has no node yet
        self._fresh = False  # the innermost list item is empty so far
        if body:
            self._open_node(Kind.CODE, 0, self._open[0])

    def read(self, tokens: Sequence[Token]) -> None:
        """Add the blocks of all tokens."""
        for i, token in enumerate(tokens):
            if _is_heading(tokens, i):
                start = self._find_text(self._begin_of(token))
                title = _strip_marks(tokens[i + 1].content)
                self.add_heading(start, self._end_of(token), _level(token), title)
            elif token.type in _CONTENT:
                self._add_content(_CONTENT[token.type], self._begin_of(token), self._end_of(token))
            elif token.type == "list_item_open":
                self._add_list_item(token)
            elif token.type == "list_item_close":
                self._items.pop()
                self._fresh = False
            elif token.type == "blockquote_open" and self._quote is None:
                self._quote = self._begin_of(token)
            elif token.type == "blockquote_close" and self._quote is not None:
                self._add_content(Kind.PARAGRAPH, self._quote, len(self._text))  # an empty quote

    def _add_content(self, kind: Kind, start: int, stop: int) -> None:
        fresh, self._fresh = self._fresh, False
        start = self._take_quote(start)
        begin = _NOT_BLANK.search(self._text, start, stop)
        if begin is None or (fresh and kind is Kind.PARAGRAPH):
            return  # blank, or the list item's own text
        # The indent of code is part of it.
        start = start if kind is Kind.CODE else begin.start()
        self.add_block(kind, start, item=self._items[-1][0] if self._items else None)

    def _add_list_item(self, token: Token) -> None:
        line = self._begin_of(token)
        mark = _LIST_MARK.match(self._text, line)
        start = self._find_text(self._take_quote(line))
        around = self._items[-1][0] if self._items else None
        item = self.add_block(Kind.LIST_ITEM, start, item=around)
        self._items.append((item, mark.end() if mark else line))
        self._fresh = True

    def _find_text(self, start: int) -> int:
        """Return the first place from `start` that is not blank."""
        found = _NOT_BLANK.search(self._text, start)
        return found.start() if found else start

    def _take_quote(self, start: int) -> int:
        """Return where a block at `start` begins, with the marks of a quote just opened."""
        quote, self._quote = self._quote, None
        return start if quote is None else quote

    def _begin_of(self, token: Token) -> int:
        """Return where a block's text begins: its line, or after a list mark on the same line."""
        line = self._lines[(token.map or [0, 0])[0]]
        return max(line, self._items[-1][1]) if self._items else line

    def _end_of(self, token: Token) -> int:
        """Return the end of a block's last line."""
        line = (token.map or [0, 0])[1]
        return self._lines[line] if line < len(self._lines) else len(self._text)


_LONGEST_INLINE = 2000  # in a longer line marks stay: some take quadratic time to pair
_ATTRIBUTES = re.compile(r" +\{[#.:][^{}]{0,200}\}\s*$")  # of a heading, as Pandoc writes them
_INLINE_MARK = re.compile(r"[\\`*_~\[!<&]")


def _strip_marks(inline: str) -> str:
    """Return a line of Markdown without its marks: emphasis, code, links, escapes.

    >>> _strip_marks("The *first* [draft](https://example.org) of `a*b`")
    'The first draft of a*b'
    """
    inline = _ATTRIBUTES.sub("", inline)
    if len(inline) > _LONGEST_INLINE or not _INLINE_MARK.search(inline):
        return " ".join(inline.split())
    tokens: list[Token] = []
    _PARSER.inline.parse(inline, _PARSER, {}, tokens)
    return " ".join("".join(_iter_text(tokens)).split())


def _iter_text(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "image":
            yield from _iter_text(token.children or [])
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.type != "html_inline":
            yield token.content


_LONGEST_TITLE = 200  # of an underlined heading, in characters


def _is_heading(tokens: Sequence[Token], i: int) -> bool:
    """Report whether a heading begins here that is not inside a list or a quote."""
    token = tokens[i]
    if token.type != "heading_open" or token.level:
        return False
    title = tokens[i + 1].content
    if token.markup[0] == "#":
        return True
    # Between two rules are the facts of a slide.
    rule = tokens[i - 1].map if i and tokens[i - 1].type == "hr" else None
    if rule and token.map and rule[1] == token.map[0] and _load_facts("yaml", title):
        return False
    return len(title) <= _LONGEST_TITLE and title.count("\n") < 2


def _level(heading: Token) -> int:
    return int(heading.tag[1:])
