"""What is done to the elements of HTML before they are written: a site's furniture goes, marks of
notes too, lists get their numbers, and every row of a table has all its cells."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice, takewhile, zip_longest

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.reading.numbers import format_number

_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
_DROPPED = "dropped"


def clean_xml(text: str | None) -> str:
    """Return a text without the characters that lxml does not write."""
    return _NOT_XML.sub(" ", text or "")


def _read_line(element: etree._Element) -> str:
    return " ".join(clean_xml("".join(element.itertext(etree.Element))).split())


def put_below(
    inside: etree._Element, block: etree._Element, last: dict[etree._Element, etree._Element]
) -> None:
    """Put a block below the paragraph or the outermost table around an element; `last` is what was
    put below each so far."""
    tables = [*inside.iterancestors("{*}tbl", "{*}table")][-1:]
    for around in tables or [*inside.iterancestors("{*}p", "{*}h")][:1]:
        last.get(around, around).addnext(block)
        last[around] = block


def label_comment(author: str) -> str:
    """Return what stands before a comment on a document's text."""
    return f"[Comment by {author}]" if author else "[Comment]"


PAGE = "\ue000"  # stands for a number of a page
PAGE_FIELD = re.compile(r"\s*(PAGE|NUMPAGES|SECTIONPAGES)\b")
"""The code of a field of Word that shows one."""


def join_pieces(text: str) -> str:
    """Return what stands above or below pages as one line; a piece with a page's number goes."""
    pieces = (piece for piece in text.split("\t") if PAGE not in piece)
    return " ".join(" ".join(pieces).split())


_ROLES = {"navigation": "nav", "banner": "header", "contentinfo": "footer", "main": "main"}
_ROLES |= {"complementary": "aside", "alertdialog": "dialog", "dialog": "dialog"}
_ROLES |= dict.fromkeys(("search", "menu", "menubar", "toolbar"), "nav")
_MARKED = etree.XPath("//body//*[@role or @hidden or @aria-hidden or @aria-controls or @style]")
_EDITS = etree.XPath("//span[@class='mw-editsection']")  # of MediaWiki, beside its headings
_IN_TEXT = etree.XPath("boolean(ancestor::main or ancestor::article or ancestor::section)")
_SUBJECT = etree.XPath("boolean(descendant-or-self::main or descendant::article or descendant::h1)")
_IS_NOTE = etree.XPath("contains(@*[name()='epub:type'], 'note') or starts-with(@role, 'doc-')")
_IS_TITLE = etree.XPath("boolean(@aria-expanded or @aria-controls or ancestor::h2 or ancestor::h3)")


def drop_furniture(root: etree._Element) -> None:
    """Leave out what a page marks as its site's or as hidden: menus, dialogs, footers.

    What holds the page's subject stays, and what a control of the page unfolds. If a main part
    has most of the text, what stands around it goes too.
    """
    marked = _MARKED(root)
    unfolded = {name for each in marked for name in each.get("aria-controls", "").split()}
    for element in marked:
        element.tag = _ROLES.get(element.get("role"), element.tag)
        styled = "display:none" in element.get("style", "").replace(" ", "")
        if not (styled or "hidden" in element.attrib or element.get("aria-hidden") == "true"):
            continue
        unfolds = element.get("id") in unfolded or element.get("hidden") == "until-found"
        if unfolds or _SUBJECT(element):
            for name in ("hidden", "aria-hidden", "style"):
                element.attrib.pop(name, None)
        else:
            element.tag = _DROPPED
    for element in [*_EDITS(root), *root.iter("nav", "dialog", "header", "footer", "button")]:
        if element.tag == "button":
            element.tag = "span" if _IS_TITLE(element) else _DROPPED
            element.tail = element.tail or " "  # names of tabs touch
            continue
        in_text = element.tag in ("header", "footer") and _IN_TEXT(element)
        element.tag = "div" if in_text or _SUBJECT(element) else _DROPPED
    mains = list(root.iter("main")) or list(root.iter("article"))
    for aside in list(root.iter("aside")):
        if _IS_NOTE(aside) or next(aside.iterancestors("aside", _DROPPED), None) is not None:
            continue
        if _is_links(aside) or (mains and not _IN_TEXT(aside)):
            aside.tag = _DROPPED
    etree.strip_elements(root, _DROPPED, with_tail=False)
    if len(mains) == 1 and 2 * len(_read_line(mains[0])) > len(_read_line(root)):
        for around in [mains[0], *mains[0].iterancestors()][:-2]:
            for block in [*around.itersiblings(), *around.itersiblings(preceding=True)]:
                if not _SUBJECT(block):
                    block.tag = _DROPPED
        etree.strip_elements(root, _DROPPED, with_tail=False)


def _is_links(block: etree._Element) -> bool:
    """Return whether most of a block's text below its headings is in links."""
    titles = sum(len(_read_line(each)) for each in block.iter("h2", "h3", "h4"))
    linked = sum(len(_read_line(each)) for each in block.iter("a"))
    return 2 * linked > len(_read_line(block)) - titles


_GLUED = re.compile(r"[\w.,;:!?)\]\"'\u2019\u201d\u00bb%]\Z")
_LONGEST_MARK = 6


def drop_note_marks(root: etree._Element) -> None:
    """Drop the marks of notes, which would stand in sentences, and the links back from notes."""
    inside = re.compile(r"[^:]*#")  # an address without a scheme: of the page or the book
    for link in [each for each in root.iter("a") if inside.match(each.get("href", ""))]:
        shown, around, before = _read_line(link), link.getparent(), link.getprevious()
        role = f"{link.get('role')} {link.get('epub:type')}"
        text = (around.text if before is None else before.tail) or ""
        if before is None and not text and around.tag in ("span", "small", "b", "i"):
            before = around.getprevious()
            text = (around.getparent().text if before is None else before.tail) or ""
        raised = any(_read_line(each) == shown for each in link.iter("sup"))
        glued = (
            _GLUED.search(text)
            or not any(map(str.isdigit, shown))
            or (before is not None and before.tag == _DROPPED and not text)
        )
        is_mark = 0 < len(shown) <= _LONGEST_MARK and not any(map(str.isalpha, shown))
        if around.tag == "sup":
            around.tag = _DROPPED
        elif raised or "noteref" in role or "backlink" in role or (is_mark and glued):
            link.tag = _DROPPED
        else:
            link.tag = "span"  # a document has no such places
            if is_mark and before is None and not text.strip():  # the label of a note
                link.tail = f" {clean_xml(link.tail)}"
    etree.strip_elements(root, _DROPPED, with_tail=False)


_INTEGER = re.compile(r"-?\d{1,9}")


def number_items(root: etree._Element) -> None:
    """Give lists the numbers that are shown: Markdown writes 1, 2, 3 and no letters."""
    for listed in list(root.iter("ol")):
        items = listed.findall("li")
        form, step = listed.get("type", "1"), -1 if "reversed" in listed.attrib else 1
        number = read_integer(listed.get("start"), 1 if step > 0 else len(items)) - step
        within, expected = listed, None
        for item in items:
            number = read_integer(item.attrib.pop("value", None), number + step)
            if form != "1":
                _begin_with(item, f"{format_number(number, form)}. ")
            elif expected is None:
                listed.set("start", str(number))
            elif number != expected:  # the numbers jump: another list begins
                following = etree.Element("ol", start=str(number))
                within.addnext(following)
                within = following
            if within is not listed:
                within.append(item)
            expected = number + 1
        if form != "1":
            listed.tag = "ul"


def read_integer(written: str | None, default: int) -> int:
    """Return what an attribute says in figures, or a default."""
    return int(written) if written and _INTEGER.fullmatch(written.strip()) else default


def _begin_with(element: etree._Element, text: str) -> None:
    """Put a text before that of an element, inside its first paragraph."""
    while len(element) and not (element.text or "").strip() and element[0].tag in ("p", "div"):
        element = element[0]
    element.text = text + clean_xml(element.text)


_TICKED = etree.XPath("//*[@aria-checked]")
_LABELLED = etree.XPath(
    "not(parent::body) or boolean(following-sibling::node()[1][self::text()][normalize-space()])"
)


def mark_boxes(root: etree._Element) -> None:
    """Turn the boxes of a form into signs that tell whether they are ticked, but for those of a
    page's menu, which stand alone."""
    inputs = [box for box in root.iter("input") if box.get("type") in ("checkbox", "radio")]
    for box in [*filter(_LABELLED, inputs), *_TICKED(root)]:
        ticked = "checked" in box.attrib or box.get("aria-checked") == "true"
        if box.tag == "input":
            box.tag = "span"
        _begin_with(box, " \u2612 " if ticked else " \u2610 ")


_LONGEST_LABEL = 200  # characters of a cell that is repeated
_MOST_FILLED = 1_000_000  # characters of a table that spans fill, its cells counted
_WIDEST = 1_000
_DEEPEST_HEAD = 5
_GROUPS = ("tr", "thead", "tbody", "tfoot")
_SPANS = etree.XPath("boolean(.//@rowspan[.!='1'] | .//@colspan[.!='1'])")


def arrange_tables(root: etree._Element) -> None:
    """Give each row all its cells and each table one head, which is all that Markdown knows."""
    for table in list(root.iter("table")):
        if _is_layout(table, rows := _rows_of(table)):
            for element in [table, *table.iterchildren(), *rows, *_cells_of(rows)]:
                element.tag = "div"
    for table in reversed(list(root.iter("table"))):  # the inner first
        rows = _rows_of(table)
        if not rows or not all(child.tag in ("td", "th") for row in rows for child in row):
            continue
        if next(table.iterancestors("table"), None) is None:
            _fill_table(table, rows)
            continue
        _part_blocks(table)  # a table inside a cell becomes one line of it
        lines = [_read_line(each) for each in table if each.tag not in _GROUPS]
        lines += [", ".join(filter(None, map(_read_line, _cells_of([row])))) for row in rows]
        table.clear(keep_tail=True)
        table.tag, table.text = "div", "; ".join(filter(None, lines))


def _rows_of(table: etree._Element) -> list[etree._Element]:
    groups = [[each] if each.tag == "tr" else [*each] for each in table if each.tag in _GROUPS]
    return [row for group in groups for row in group if row.tag == "tr"]


def _cells_of(rows: Sequence[etree._Element]) -> list[etree._Element]:
    return [cell for row in rows for cell in row.iterchildren("td", "th")]


def _is_layout(table: etree._Element, rows: Sequence[etree._Element]) -> bool:
    """Return whether a table has but one cell, or holds headings or tables and no rows of data."""
    cells = _cells_of(rows)
    if table.get("role") in ("presentation", "none") or len(cells) == 1:
        return True
    if len(list(islice(table.iter("table", "h1", "h2", "h3"), 2))) < 2:  # one is the table itself
        return False
    if any(cell.tag == "th" for cell in cells) or table.find("thead") is not None:
        return False
    return sum(sum(1 for cell in _cells_of([row]) if _read_line(cell)) > 1 for row in rows) < 2


def _fill_table(table: etree._Element, rows: list[etree._Element]) -> None:
    """Repeat what spans rows in each, write a head of several rows as one, and a row above it
    that spans all columns as a line above the table."""
    if _count_head(rows) < 2 and not _SPANS(table):
        return
    _part_blocks(table)
    width = max(sum(_read_span(cell, "colspan") for cell in _cells_of([row])) for row in rows)
    while len(rows) > 2 and len(cells := _cells_of(rows[:1])) == 1:
        if not 1 < width <= _read_span(cells[0], "colspan"):
            break
        title = etree.Element("p")
        title.text = _read_line(rows[0])
        table.addprevious(title)
        rows[0].getparent().remove(rows.pop(0))
    deep = _count_head(rows)
    _fill_spans(rows, deep)
    if deep > 1:
        columns = zip_longest(*([_read_line(cell) for cell in row] for row in rows[:deep]))
        for row in rows[1:deep]:
            row.getparent().remove(row)
        rows[0][:] = [_make_cell(" ".join(filter(None, dict.fromkeys(each)))) for each in columns]


def _part_blocks(table: etree._Element) -> None:
    """Put blanks between the lines of cells, which are read as one."""
    for block in table.iter("br", "p", "div", "li"):
        block.tail = f" {clean_xml(block.tail)}"


def _count_head(rows: Sequence[etree._Element]) -> int:
    """Return how many rows the head has: those marked so, or the first and what it spans."""
    marked = takewhile(lambda row: row.getparent().tag == "thead", rows)
    titles = takewhile(lambda row: len(row) and all(each.tag == "th" for each in row), rows)
    deep = sum(1 for _ in marked) or sum(1 for _ in titles)
    first = _cells_of(rows[:1])
    if not deep and any(_read_span(cell, "colspan") > 1 for cell in first):
        deep = max(_read_span(cell, "rowspan") for cell in first)
    return deep if deep < min(len(rows), _DEEPEST_HEAD) else 1


def _fill_spans(rows: Sequence[etree._Element], deep: int) -> None:
    """Give each row a cell for every column; `deep` rows are the head. Columns that a cell spans
    repeat it in a head, and below one that names each of them."""
    head: list[str] = []
    group, pending, left = None, dict[int, tuple[int, str]](), _MOST_FILLED
    for number, row in enumerate(rows):
        if row.getparent() is not group:
            group, pending = row.getparent(), {}
        cells: list[etree._Element] = []
        last = max(pending, default=-1)
        for cell in [*_cells_of([row]), None]:
            while len(cells) in pending or (cell is None and len(cells) <= last):
                times, text = pending.pop(len(cells), (0, ""))
                if times > 1:
                    pending[len(cells)] = (times - 1, text)
                cells.append(_make_cell(text))
                left -= len(text) + 1
                if left < 0:
                    pending.clear()
                    last = -1
            if cell is None:
                break
            wide = _read_span(cell, "colspan") if left > 0 else 1
            tall = min(_read_span(cell, "rowspan") if left > 0 else 1, len(rows) - number)
            for name in ("colspan", "rowspan"):
                cell.attrib.pop(name, None)
            text = _read_line(cell) if wide > 1 or tall > 1 else ""
            text = text if len(text) <= _LONGEST_LABEL else ""
            named = head[len(cells) : len(cells) + wide] if cells else []
            spread = number < deep - 1 or (len(named) == wide and all(named))
            for column in range(wide):
                shown = text if spread or not column else ""
                if tall > 1:
                    pending[len(cells)] = (tall - 1, shown)
                cells.append(_make_cell(shown) if column else cell)
            left -= (wide - 1) * (len(text) + 1)
        row[:] = cells
        if number == deep - 1:
            head = [_read_line(cell) for cell in cells]


def _read_span(cell: etree._Element, name: str) -> int:
    return min(read_integer(cell.get(name), 1), _WIDEST) or _WIDEST  # 0: to the end


def _make_cell(text: str) -> etree._Element:
    cell = etree.Element("td")
    cell.text = text
    return cell
