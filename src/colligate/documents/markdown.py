"""Markdown to a tree: headings nest by level, blocks stand under them, and no text is lost.

A block runs from where it begins to where the next one begins, blanks trimmed. So every
character that is not blank lies in a heading or in a content node, whatever the Markdown holds:
quote marks, rules, raw HTML and link definitions included.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from markdown_it import MarkdownIt
from markdown_it.token import Token

from colligate.documents.document import Document
from colligate.documents.span import Span
from colligate.documents.tree import Basis, Kind, Node, Structure, Tree, TreeBuilder

INTRODUCTION = "Introduction"

# Deeper lists and quotes (two levels a list, one a quote) stay text of the innermost one:
# the parser recurses, and nobody reads further in.
_MAX_NESTING = 60
_LONGEST_TITLE = 200  # of an underlined heading, in characters
_LONGEST_INLINE = 2000  # beyond it marks stay: some of them take quadratic time to pair

_PARSER = (
    # Titles alone need inline parsing, and link definitions must stay text.
    MarkdownIt("commonmark", {"maxNesting": _MAX_NESTING})
    .enable(["table", "strikethrough"])
    .disable(["inline", "text_join", "reference"])
)
_CONTENT = {
    "paragraph_open": Kind.PARAGRAPH,
    "heading_open": Kind.PARAGRAPH,  # one inside a list or a quote
    "html_block": Kind.PARAGRAPH,
    "hr": Kind.PARAGRAPH,
    "fence": Kind.CODE,
    "code_block": Kind.CODE,
    "table_open": Kind.TABLE,
}
_LINE_END = re.compile(r"\r\n?|\n")
_NOT_BLANK = re.compile(r"\S")
_INLINE_MARK = re.compile(r"[\\`*_~\[!<&]")
_LIST_MARK = re.compile(r"[ \t>]*(?:[-+*]|\d{1,9}[.)])[ \t]*")
_FRONT_MATTER = re.compile(
    r"""---[ \t]*(?:\r\n?|\n)
    (?=[\w-]+[ \t]*:)  # "key:" must follow, else the line is a rule
    (?:[^\r\n]*(?:\r\n?|\n)){1,200}?
    (?:---|\.\.\.)[ \t]*(?:\r\n?|\n|\Z)""",
    re.VERBOSE,
)


def markdown_tree(text: str, document_id: str, *, structure: Structure | None = None) -> Tree:
    """The tree of a Markdown text, its spans over `text` as given.

    Headings nest under the nearest shallower one before them, whatever levels are skipped;
    those inside lists and quotes are content. An underlined ("setext") heading of more than
    two lines or 200 characters is a paragraph that someone drew a rule under.

    Lead text, the text before the first heading, stands in a synthetic section,
    "Introduction". So does the text between the title and the first heading after it, where
    the first heading is the document's title: others follow and all of them are deeper. Front
    matter is a code block under the root. Without headings the blocks stand right under the
    root and the structure's basis is `NONE`; `structure` says what headings rest on (default:
    markup, sure).
    """
    match = _FRONT_MATTER.match(text)
    body = match.end() if match else 0
    tokens = _PARSER.parse(text[body:])
    levels = [_level(token) for i, token in enumerate(tokens) if _is_heading(tokens, i)]
    if not levels:
        structure = Structure(1.0, Basis.NONE)
    walk = _Walk(text, document_id, body, levels)
    return walk.tree(tokens, structure or Structure(1.0, Basis.MARKUP))


def block_spans(document: Document) -> list[Span]:
    """The text of a tree again: each heading and each content node's own text, in order.

    They have no blanks around them, never overlap, and leave out no other character.
    """
    return [span for node in document.tree if (span := own_span(document, node)) is not None]


def own_span(document: Document, node: Node) -> Span | None:
    """What a node says itself: a section's heading, or content's text before its first child.

    Blanks around it are left out; None where nothing remains (the root, a synthetic section).
    """
    if node.kind in (Kind.ROOT, Kind.SECTION):
        return node.heading
    start, end = node.span.start, node.span.end
    if node.children:
        end = document.tree.nodes[node.children[0]].span.start
    end = start + len(document.text[start:end].rstrip())
    return Span(document.id, start, end) if end > start else None


class _Walk:
    """One pass over the parser's tokens; a node closes when the next one outside it begins."""

    def __init__(self, text: str, document_id: str, body: int, levels: Sequence[int]) -> None:
        self._text = text
        self._lines = [body, *(m.end() for m in _LINE_END.finditer(text, body))]
        self._builder = TreeBuilder(document_id)
        root = self._builder.add(Kind.ROOT, 0, len(text), None)
        self._open = [root]  # from the root to the latest node
        self._sections = [(0, root)]  # (level, node) of the sections around this place
        self._items: list[tuple[int, int]] = []  # (node, where its text begins) of list items
        self._quote: int | None = None  # where a quote begins of which nothing is placed yet
        self._fresh = False  # the innermost list item holds nothing yet
        self._introduction: int | None = None
        self._trim = (0, 0)  # the last answer of _trimmed
        self._titled = len(levels) > 1 and levels[0] < min(levels[1:])
        self._lead = bool(levels)  # text here is lead text
        if body:
            self._add(Kind.CODE, 0, root)

    def tree(self, tokens: Sequence[Token], structure: Structure) -> Tree:
        """Read all tokens and close what is open."""
        for i, token in enumerate(tokens):
            if _is_heading(tokens, i):
                self._heading(token, tokens[i + 1].content)
            elif token.type in _CONTENT:
                self._content(_CONTENT[token.type], self._begin(token), self._end(token))
            elif token.type == "list_item_open":
                self._list_item(token)
            elif token.type == "list_item_close":
                self._items.pop()
                self._fresh = False
            elif token.type == "blockquote_open" and self._quote is None:
                self._quote = self._begin(token)
            elif token.type == "blockquote_close" and self._quote is not None:
                self._content(Kind.PARAGRAPH, self._quote, len(self._text))  # an empty quote
        self._close_to(self._open[0], self._trimmed(len(self._text)))
        return self._builder.build(structure)

    def _heading(self, token: Token, content: str) -> None:
        level = _level(token)
        while self._sections[-1][0] >= level:
            self._sections.pop()
        begin = _NOT_BLANK.search(self._text, self._begin(token))
        start = begin.start() if begin else self._begin(token)
        end = self._trimmed(self._end(token))
        section = self._add(
            Kind.SECTION,
            start,
            self._sections[-1][1],
            level=level,
            title=plain_text(content),
            heading=(start, end),
        )
        self._sections.append((level, section))
        self._lead, self._titled, self._introduction = self._titled, False, None

    def _content(self, kind: Kind, start: int, stop: int) -> None:
        fresh, self._fresh = self._fresh, False
        start = self._take_quote(start)
        begin = _NOT_BLANK.search(self._text, start, stop)
        if begin is None or (fresh and kind is Kind.PARAGRAPH):
            return  # nothing to see, or the list item's own text
        if kind is not Kind.CODE:  # the indent of code is part of it
            start = begin.start()
        self._add(kind, start, self._parent(start))

    def _list_item(self, token: Token) -> None:
        line = self._begin(token)
        mark = _LIST_MARK.match(self._text, line)
        begin = _NOT_BLANK.search(self._text, self._take_quote(line))
        start = begin.start() if begin else line
        item = self._add(Kind.LIST_ITEM, start, self._parent(start))
        self._items.append((item, mark.end() if mark else line))
        self._fresh = True

    def _add(
        self,
        kind: Kind,
        start: int,
        parent: int,
        *,
        level: int = 0,
        title: str = "",
        heading: tuple[int, int] | None = None,
    ) -> int:
        self._close_to(parent, self._trimmed(start))
        node = self._builder.add(
            kind, start, start, parent, level=level, title=title, heading=heading
        )
        self._open.append(node)
        return node

    def _close_to(self, node: int, end: int) -> None:
        """Close all that is open inside `node`."""
        while self._open[-1] != node:
            self._builder.close(self._open.pop(), end)

    def _parent(self, start: int) -> int:
        """The node that content at `start` belongs to: list item, introduction or section."""
        if self._items:
            return self._items[-1][0]
        level, section = self._sections[-1]
        if not self._lead:
            return section
        if self._introduction is None:
            self._introduction = self._add(
                Kind.SECTION, start, section, level=level + 1, title=INTRODUCTION
            )
        return self._introduction

    def _take_quote(self, start: int) -> int:
        """Where a block at `start` begins, the marks of a quote just opened included."""
        quote, self._quote = self._quote, None
        return start if quote is None else quote

    def _begin(self, token: Token) -> int:
        """Where a block's text begins: its line, or after the list mark it shares a line with."""
        line = self._lines[(token.map or [0, 0])[0]]
        return max(line, self._items[-1][1]) if self._items else line

    def _end(self, token: Token) -> int:
        """The end of a block's last line."""
        line = (token.map or [0, 0])[1]
        return self._lines[line] if line < len(self._lines) else len(self._text)

    def _trimmed(self, end: int) -> int:
        """`end` moved back over blanks."""
        if self._trim[0] != end:  # many nodes may close at one place
            trimmed = end
            while trimmed and self._text[trimmed - 1].isspace():
                trimmed -= 1
            self._trim = (end, trimmed)
        return self._trim[1]


def plain_text(inline: str) -> str:
    """The text of a line of Markdown without its marks: emphasis, code, links, escapes.

    >>> plain_text("The *first* [draft](https://example.org) of `a*b`")
    'The first draft of a*b'
    """
    if len(inline) > _LONGEST_INLINE or not _INLINE_MARK.search(inline):
        return " ".join(inline.split())
    tokens: list[Token] = []
    _PARSER.inline.parse(inline, _PARSER, {}, tokens)
    return " ".join("".join(_inline_text(tokens)).split())


def _inline_text(tokens: Sequence[Token]) -> Iterator[str]:
    for token in tokens:
        if token.type == "image":
            yield from _inline_text(token.children or [])
        elif token.type in ("softbreak", "hardbreak"):
            yield " "
        elif token.type != "html_inline":
            yield token.content


def _is_heading(tokens: Sequence[Token], i: int) -> bool:
    """Whether a heading of the document begins here, and not one inside a list or quote."""
    token = tokens[i]
    if token.type != "heading_open" or token.level:
        return False
    title = tokens[i + 1].content
    return token.markup[0] == "#" or (len(title) <= _LONGEST_TITLE and title.count("\n") < 2)


def _level(heading: Token) -> int:
    return int(heading.tag[1:])
