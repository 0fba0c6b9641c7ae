"""Wikitext, as MediaWiki sites write it, to Markdown.

Headings keep their level, lists their nesting and tables their cells. References, files,
categories, comments and most templates are not part of what a reader reads and go; an infobox
becomes a table, and a few inline templates become the text they show.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

import mwparserfromhell
from mwparserfromhell import nodes
from mwparserfromhell.wikicode import Wikicode

from colligate.documents.document import Document
from colligate.documents.reading.source import SourceFile, markdown_document
from colligate.errors import CorruptFile

_ITEM = re.compile(r" *(?:-|1\.) ")
_OPENED = re.compile(r"<([a-z]+)\b[^<>]*(?<!/)>", re.IGNORECASE)
_CLOSED = re.compile(r"</([a-z]+)\s*>", re.IGNORECASE)
_NEVER_CLOSED = {"br", "hr", "li", "dd", "dt", "tr", "td", "th", "wbr"}
_MOST_UNCLOSED = 1_000
_DROPPED_TAGS = {"ref", "references", "gallery", "imagemap", "timeline", "templatestyles", "score"}
_VERBATIM_TAGS = {"pre", "syntaxhighlight", "source"}
_BLOCK_TAGS = {"blockquote", "div", "p", "center", "poem", "ul", "ol", "dl"}
# Namespaces whose links show no text, in the larger Wikipedias' languages.
_HIDDEN_NAMESPACES = re.compile(
    r"\s*(?:file|image|category|media|fichier|catégorie|datei|bild|kategorie|archivo|imagen|"
    r"categoría|ficheiro|imagem|categoria|immagine|bestand|categorie|plik|grafika|kategoria|"
    r"файл|категория|文件|图像|分类|ファイル|画像|カテゴリ|파일|분류|ملف|تصنيف|dosya|resim|kategori)\s*:",
    re.IGNORECASE,
)
# Inline templates that show one of their parameters, by its position.
_SHOWN_PARAMETER = {
    "lang": 2, "nowrap": 1, "nobr": 1, "small": 1, "big": 1, "abbr": 1, "quote": 1,
    "blockquote": 1, "em": 1, "strong": 1, "transl": 2, "ill": 1, "smallcaps": 1, "sc": 1,
    "langx": 2, "nobold": 1, "dfn": 1, "code": 1, "var": 1, "tq": 1, "circa": 1,
}  # fmt: skip


def read_wikitext(source: SourceFile) -> Document:
    """A page in wikitext; its title is the file's name, as the page's is its own."""
    _check_closed(source)
    text = convert_wikitext(source.decoded.text)
    title = source.stem.replace("_", " ")
    return markdown_document(source, text, title=title, warnings=source.decoded.warnings)


def _check_closed(source: SourceFile) -> None:
    """The parser's time grows with the square of the tags that never close."""
    opened = Counter(match[1].lower() for match in _OPENED.finditer(source.decoded.text))
    closed = Counter(match[1].lower() for match in _CLOSED.finditer(source.decoded.text))
    for tag in opened:
        if tag not in _NEVER_CLOSED and opened[tag] - closed[tag] > _MOST_UNCLOSED:
            raise CorruptFile(
                f"cannot read {source.path}",
                f"{opened[tag] - closed[tag]:,} <{tag}> tags never close",
                "close them",
            )


def convert_wikitext(wikitext: str) -> str:
    """The Markdown of a page.

    >>> print(markdown_of("== Life ==\\n* born in [[Graz|the city]]<ref>x</ref>\\n** once"))
    ## Life
    <BLANKLINE>
    - born in the city
      - once
    <BLANKLINE>
    """
    rendered = "".join(_render(mwparserfromhell.parse(wikitext).nodes))
    text = "\n".join(_parted(rendered.split("\n")))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


def _parted(lines: Iterable[str]) -> Iterator[str]:
    """The lines, with a blank one where text follows a list: to Markdown it would be the item's."""
    in_list = False
    for line in lines:
        is_item = _ITEM.match(line) is not None
        if in_list and line.strip() and not is_item:
            yield ""
        in_list = is_item
        yield line.rstrip()


def _render(found: Iterable[nodes.Node]) -> Iterator[str]:
    marks = ""  # of a list item, as they come one by one: "*", "*#", ...
    line_starts = True
    for node in found:
        mark = _list_mark(node)
        if mark:
            marks += mark
            continue
        text = _of(node)
        if marks:
            text = _item_mark(marks) + text.lstrip(" \t")
            marks, line_starts = "", False
        elif line_starts:
            text = text.lstrip(" \t")  # an indent would make it code
        if isinstance(node, nodes.Text):
            text = re.sub(r"\n[ \t]+", "\n", text)
        if text:
            line_starts = text.endswith("\n")
        yield text


def _list_mark(node: nodes.Node) -> str:
    if isinstance(node, nodes.Tag) and node.wiki_markup in ("*", "#", ":", ";"):
        return str(node.wiki_markup)
    return ""


def _item_mark(marks: str) -> str:
    if set(marks) <= {":"}:
        return ""  # an indented paragraph
    # An item lies inside one above it by the width of that one's mark.
    indent = "".join("   " if mark == "#" else "  " for mark in marks[:-1])
    return indent + ("1. " if marks.endswith("#") else "- ")


def _of(node: nodes.Node) -> str:
    if isinstance(node, nodes.Text):
        return str(node.value)
    if isinstance(node, nodes.Heading):
        return f"\n{'#' * node.level} {_inline(node.title)}\n\n"
    if isinstance(node, nodes.Wikilink):
        return _link(node)
    if isinstance(node, nodes.ExternalLink):
        return _inline(node.title) if node.title else str(node.url)
    if isinstance(node, nodes.HTMLEntity):
        return node.normalize().replace("\xa0", " ")
    if isinstance(node, nodes.Template):
        return _template(node)
    if isinstance(node, nodes.Tag):
        return _tag(node)
    if isinstance(node, nodes.Argument):
        return _inline(node.default) if node.default else ""
    return ""


def _inline(code: Wikicode | None) -> str:
    return " ".join("".join(_render(code.nodes)).split()) if code is not None else ""


def _link(node: nodes.Wikilink) -> str:
    target = str(node.title).strip()
    if _HIDDEN_NAMESPACES.match(target):
        return ""
    return _inline(node.text) or target.lstrip(":").replace("#", " § ")


def _tag(node: nodes.Tag) -> str:
    name = str(node.tag).strip().lower()
    if name in _DROPPED_TAGS or node.contents is None:
        return "\n" if name in ("br", "hr") else ""
    if name in ("br", "hr"):
        return "\n"
    if name == "table":
        return f"\n\n{_table(node)}\n\n"
    if name in _VERBATIM_TAGS:
        return f"\n\n```\n{str(node.contents).strip(chr(10))}\n```\n\n"
    if name in ("nowiki", "math", "chem", "code"):
        return str(node.contents)
    text = "".join(_render(node.contents.nodes))
    return f"\n\n{text.strip()}\n\n" if name in _BLOCK_TAGS else text


def _template(node: nodes.Template) -> str:
    name = str(node.name).strip().lower()
    if name.startswith("infobox"):
        rows = [[str(p.name).strip(), _inline(p.value)] for p in node.params if p.showkey]
        return f"\n\n{_rows([row for row in rows if row[1]])}\n\n"
    if name in ("convert", "cvt") and len(node.params) >= 2:
        return f"{_inline(node.params[0].value)} {_inline(node.params[1].value)}"
    position = _SHOWN_PARAMETER.get(name)
    if position is not None and node.has(str(position)):
        return _inline(node.get(str(position)).value)
    return ""


def _table(node: nodes.Tag) -> str:
    first = _cells(node)  # a first row may stand in the table without a mark of its own
    caption = first.pop(0).lstrip("+ ") + "\n\n" if first and first[0].startswith("+") else ""
    rows = [first, *(_cells(row) for row in _tags(node, "tr"))]
    return caption + _rows([row for row in rows if row])


def _cells(node: nodes.Tag) -> list[str]:
    return [_inline(cell.contents) for cell in _tags(node, "td", "th")]


def _tags(node: nodes.Tag, *names: str) -> list[nodes.Tag]:
    return [
        child
        for child in node.contents.nodes
        if isinstance(child, nodes.Tag) and child.tag in names
    ]


def _rows(rows: list[list[str]]) -> str:
    """A Markdown table; the first row is its head."""
    if not rows:
        return ""
    width = max(map(len, rows))
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|") for cell in [*row, *[""] * (width - len(row))])
        + " |"
        for row in rows
    ]  # fmt: skip
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])
