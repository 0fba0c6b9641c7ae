"""Wikitext, as MediaWiki sites write it, to Markdown.

Headings keep their level, lists their nesting and tables their cells. References, files,
categories, comments and most templates are left out, as readers do not see them; an infobox
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
from colligate.documents.markdown import format_table, superscript_mark
from colligate.documents.reading.source import SourceFile, make_document
from colligate.errors import CorruptFile


def read_wikitext(source: SourceFile) -> Document:
    """Read a page in wikitext; its title is the file's name, as pages are named on the site."""
    _check_closed(source)
    text = convert_wikitext(source.text)
    return make_document(source, text, title=source.stem.replace("_", " "))


_OPENED = re.compile(r"<([a-z]+)\b[^<>]*(?<!/)>", re.IGNORECASE)
_CLOSED = re.compile(r"</([a-z]+)\s*>", re.IGNORECASE)
_NEVER_CLOSED = {"br", "hr", "li", "dd", "dt", "tr", "td", "th", "wbr"}
_MOST_UNCLOSED = 1_000


def _check_closed(source: SourceFile) -> None:
    """Refuse many unclosed tags: the parser's time grows with their square."""
    opened = Counter(match[1].lower() for match in _OPENED.finditer(source.text))
    closed = Counter(match[1].lower() for match in _CLOSED.finditer(source.text))
    for tag in opened:
        if tag not in _NEVER_CLOSED and opened[tag] - closed[tag] > _MOST_UNCLOSED:
            why = f"{opened[tag] - closed[tag]:,} <{tag}> tags never close"
            raise source.error(CorruptFile, why, "close them")


def convert_wikitext(wikitext: str) -> str:
    """Return the Markdown of a page.

    >>> print(convert_wikitext("== Life ==\\n* born in [[Graz|the city]]<ref>x</ref>\\n** once"))
    ## Life
    <BLANKLINE>
    - born in the city
      - once
    <BLANKLINE>
    """
    wikitext = _DEEP_ITEM.sub(r"\1", wikitext)
    rendered = "".join(_render(mwparserfromhell.parse(wikitext).nodes))
    text = "\n".join(_separate_lists(rendered.split("\n")))
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n") + "\n"


# Deeper list items are moved up: the parser's time grows with the square of their depth.
_DEEP_ITEM = re.compile(r"^([*#:;]{20})[*#:;]+", re.MULTILINE)
_ITEM = re.compile(r" *(?:-|1\.) ")


def _separate_lists(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines, a blank one after each list: Markdown would add the text to the item."""
    in_list = False
    for line in lines:
        is_item = _ITEM.match(line) is not None
        if in_list and line.strip() and not is_item:
            yield ""
        in_list = is_item
        yield line.rstrip()


def _render(found: Iterable[nodes.Node]) -> Iterator[str]:
    marks = ""  # of a list item, collected one by one: "*", "*#", ...
    line_starts = True
    before = ""
    for node in found:
        if isinstance(node, nodes.Tag) and node.wiki_markup in ("*", "#", ":", ";"):
            marks += str(node.wiki_markup)
            continue
        text = _render_node(node)
        if isinstance(node, nodes.Tag) and str(node.tag).strip().lower() == "sup":
            text = superscript_mark(before, text) + text
        before = text or before
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


def _item_mark(marks: str) -> str:
    if set(marks) <= {":"}:
        return ""  # an indented paragraph
    # An item is nested by an indent as wide as the outer item's mark.
    indent = "".join("   " if mark == "#" else "  " for mark in marks[:-1])
    return indent + ("1. " if marks.endswith("#") else "- ")


def _render_node(node: nodes.Node) -> str:
    if isinstance(node, nodes.Text):
        return str(node.value)
    if isinstance(node, nodes.Heading):
        return f"\n{'#' * node.level} {_render_inline(node.title)}\n\n"
    if isinstance(node, nodes.Wikilink):
        return _render_link(node)
    if isinstance(node, nodes.ExternalLink):
        return _render_inline(node.title) if node.title else str(node.url)
    if isinstance(node, nodes.HTMLEntity):
        return node.normalize().replace("\xa0", " ")
    if isinstance(node, nodes.Template):
        return _render_template(node)
    if isinstance(node, nodes.Tag):
        return _render_tag(node)
    if isinstance(node, nodes.Argument):
        return _render_inline(node.default) if node.default else ""
    return ""


def _render_inline(code: Wikicode | None) -> str:
    return " ".join("".join(_render(code.nodes)).split()) if code is not None else ""


# Namespaces whose links show no text, in the larger Wikipedias' languages.
_HIDDEN_NAMESPACES = re.compile(
    r"\s*(?:file|image|category|media|fichier|catégorie|datei|bild|kategorie|archivo|imagen|"
    r"categoría|ficheiro|imagem|categoria|immagine|bestand|categorie|plik|grafika|kategoria|"
    r"файл|категория|文件|图像|分类|ファイル|画像|カテゴリ|파일|분류|ملف|تصنيف|dosya|resim|kategori)\s*:",
    re.IGNORECASE,
)


def _render_link(node: nodes.Wikilink) -> str:
    target = str(node.title).strip()
    if _HIDDEN_NAMESPACES.match(target):
        return ""
    return _render_inline(node.text) or target.lstrip(":").replace("#", " § ")


_DROPPED_TAGS = {"ref", "references", "gallery", "imagemap", "timeline", "templatestyles", "score"}
_VERBATIM_TAGS = {"pre", "syntaxhighlight", "source"}
_BLOCK_TAGS = {"blockquote", "div", "p", "center", "poem", "ul", "ol", "dl"}


def _render_tag(node: nodes.Tag) -> str:
    name = str(node.tag).strip().lower()
    if name in _DROPPED_TAGS or node.contents is None:
        return "\n" if name in ("br", "hr") else ""
    if name in ("br", "hr"):
        return "\n"
    if name == "table":
        return f"\n\n{_render_table(node)}\n\n"
    if name in _VERBATIM_TAGS:
        return f"\n\n```\n{str(node.contents).strip(chr(10))}\n```\n\n"
    if name in ("nowiki", "math", "chem", "code"):
        return str(node.contents)
    text = "".join(_render(node.contents.nodes))
    return f"\n\n{text.strip()}\n\n" if name in _BLOCK_TAGS else text


_RULE = " --- "  # between the head of a table and its rows

# Inline templates that show one of their parameters, by its position.
_SHOWN_PARAMETER = {
    "lang": 2, "nowrap": 1, "nobr": 1, "small": 1, "big": 1, "abbr": 1, "quote": 1,
    "blockquote": 1, "em": 1, "strong": 1, "transl": 2, "ill": 1, "smallcaps": 1, "sc": 1,
    "langx": 2, "nobold": 1, "dfn": 1, "code": 1, "var": 1, "tq": 1, "circa": 1,
}  # fmt: skip


def _render_template(node: nodes.Template) -> str:
    name = str(node.name).strip().lower()
    if name.startswith("infobox"):
        rows = [[str(p.name).strip(), _render_inline(p.value)] for p in node.params if p.showkey]
        return f"\n\n{format_table([row for row in rows if row[1]], rule=_RULE)}\n\n"
    if name in ("convert", "cvt") and len(node.params) >= 2:
        return f"{_render_inline(node.params[0].value)} {_render_inline(node.params[1].value)}"
    position = _SHOWN_PARAMETER.get(name)
    if position is not None and node.has(str(position)):
        return _render_inline(node.get(str(position)).value)
    return ""


def _render_table(node: nodes.Tag) -> str:
    first = _read_cells(node)  # a first row may have no mark of its own
    caption = first.pop(0).lstrip("+ ") + "\n\n" if first and first[0].startswith("+") else ""
    rows = [first, *(_read_cells(row) for row in _find_tags(node, "tr"))]
    return caption + format_table([row for row in rows if row], rule=_RULE)


def _read_cells(node: nodes.Tag) -> list[str]:
    return [_render_inline(cell.contents) for cell in _find_tags(node, "td", "th")]


def _find_tags(node: nodes.Tag, *names: str) -> list[nodes.Tag]:
    tags = (child for child in node.contents.nodes if isinstance(child, nodes.Tag))
    return [child for child in tags if child.tag in names]
