"""Files that other libraries turn into Markdown: HTML, office files, e-books and e-mail.

kreuzberg reads most of them, without cache, OCR and network and in bounded time; mammoth reads Word
documents and the standard library e-mail. HTML, and what mammoth makes, is repaired by lxml first.
"""

from __future__ import annotations

import email
import email.policy
import io
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart
from functools import partial
from typing import Any

from lxml import etree  # type: ignore[import-untyped]
from lxml import html as lxml_html

from colligate.documents.document import Document, Page, clean_text
from colligate.documents.markdown import markdown_tree, superscript_mark
from colligate.documents.reading.decoding import decode
from colligate.documents.reading.formats import EPUB, ODS, PPTX, RTF, XLS, XLSX, Container
from colligate.documents.reading.limits import check_archive
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.tables import table_tree
from colligate.documents.reading.text import text_tree
from colligate.errors import CorruptFile, EncryptedFile

_NO_TITLES = {"powerpoint presentation", "document", "untitled"}  # what programs fill in
# Where a chapter of an e-book is not well-formed, its head comes as front matter.
_CHAPTER_HEAD = re.compile(r"^---\n(?:[\w:.-]+: .*\n)+---\n+", re.MULTILINE)

# A character of the private use area, which kreuzberg neither escapes nor reads as Markdown.
_PAGE_MARKER = "\n\n\ue000{page_num}\ue000\n\n"

_KEPT = ("title", "subject", "authors", "created_at", "modified_at", "language")


def read_office(source: SourceFile) -> Document:
    """Read a file of any format that kreuzberg turns into Markdown."""
    form, data = source.format, source.data
    if form.container is Container.ZIP:
        members = check_archive(data, str(source.path), source.limits)
        _warn_of_parts(source, members)
        if form is XLSX:
            _check_workbook(source, members)
            data = _write_percentages(data)
    elif form.container is Container.TEXT and form is not RTF:
        data = source.text.encode()
    marker = _PAGE_MARKER if form is PPTX else None
    text, found = _extract_markdown(source, data, form.media_type, page_marker=marker)
    pages: tuple[Page, ...] = ()
    if form is PPTX:
        text, pages = _split_slides(text, _read_order(data))
    elif form is XLSX:
        text = _DAY_ZERO.sub("", text)
    elif form is EPUB:
        text = _CHAPTER_HEAD.sub("", text)
    metadata = {
        key: ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        for key in _KEPT
        if (value := found.get(key))
    }
    title = metadata.get("title", "")
    return make_document(
        source,
        text,
        tree=table_tree if form in (XLSX, ODS, XLS) else markdown_tree,
        title=None if title.lower() in _NO_TITLES else title,
        metadata=metadata,
        pages=pages,
    )


_NOT_READ = {
    "ppt/notesSlides/": "the speaker's notes",
    "ppt/charts/": "the figures of charts",
    "word/charts/": "the figures of charts",
}


def _warn_of_parts(source: SourceFile, members: Iterable[str]) -> None:
    for folder, what in _NOT_READ.items():
        if any(name.startswith(folder) for name in members):
            source.warn(f"{what} are not read")


# Workbooks.

_DAY_ZERO = re.compile(r"\b1899-12-31 (?=\d\d:\d\d:\d\d\b)")  # kreuzberg's day of a time alone
# A formula without a value; one whose value is an empty text has a cell of type "str".
_NOT_COMPUTED = re.compile(
    rb"""<(?:\w+:)?c\b(?![^<>]*\st="str")[^<>]*>\s*
    <(?:\w+:)?f\b(?:[^<>]*/>|[^<>]*>[^<]*</(?:\w+:)?f>)
    (?!\s*<(?:\w+:)?v\b[^<>]*>[^<])""",
    re.VERBOSE,
)


def _check_workbook(source: SourceFile, members: Iterable[str]) -> None:
    """Warn of formulas that were never computed, which have no value, and of hidden sheets."""
    with zipfile.ZipFile(io.BytesIO(source.data)) as archive:
        sheets = (name for name in members if re.match(r"xl/worksheets/[^/]+\.xml\Z", name))
        count = sum(len(_NOT_COMPUTED.findall(_read_member(archive, name))) for name in sheets)
        listed = _read_xml(archive, "xl/workbook.xml").iterfind(".//{*}sheet[@state]")
    if count:
        source.warn(f"formulas without a stored value are blank: {count:,}")
    hidden = [each.get("name", "") for each in listed if each.get("state") != "visible"]
    if hidden:
        source.warn(f"hidden sheets are read: {', '.join(hidden)}")


_PERCENT = ("9", "10")  # the built-in formats
_NUMBER = rb"""<c\b(?=[^<>]*\ss="(?:%s)")(?![^<>]*\st="[^n])([^<>]*)>
    (?:\s*<f\b(?:[^<>]*/>|[^<>]*>[^<]*</f>))?\s*<v>([-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)</v>"""


def _write_percentages(data: bytes) -> bytes:
    """Return a workbook whose percentages are texts: kreuzberg reads 12.5% as 0.125."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        styles = _read_xml(archive, "xl/styles.xml")
    own = [
        each.get("numFmtId")
        for each in styles.iterfind(".//{*}numFmt")
        if _is_percent(each.get("formatCode", ""))
    ]
    formats = [each.get("numFmtId") for each in styles.iterfind(".//{*}cellXfs/{*}xf")]
    used = [str(i).encode() for i, each in enumerate(formats) if each in (*_PERCENT, *own)]
    if not used:
        return data
    number = re.compile(_NUMBER % b"|".join(used), re.VERBOSE)

    def write(match: re.Match[bytes]) -> bytes:
        attributes = match[1].replace(b' t="n"', b"")
        return b'<c%s t="str"><v>%.10g%%</v>' % (attributes, 100 * float(match[2]))

    return _change_parts(data, "xl/worksheets/", partial(number.sub, write))


def _is_percent(code: str) -> bool:
    """Report whether a format writes all numbers as percentages; a quoted "%" is only text."""
    sections = [s for s in _LITERAL.sub("", code).split(";") if re.search(r"[0#?]", s)]
    return bool(sections) and all("%" in each for each in sections)


_LITERAL = re.compile(r'"[^"]*"|\\.|_.|\*.')


def _change_parts(data: bytes, folder: str, change: Callable[[bytes], bytes]) -> bytes:
    """Return an office file of its XML alone, that of a folder changed."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(written, "w") as changed:
        for name in dict.fromkeys(archive.namelist()):
            if name.endswith((".xml", ".rels")):
                part = _read_member(archive, name)
                changed.writestr(name, change(part) if name.startswith(folder) else part)
    return written.getvalue()


def _read_member(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the bytes of a member; none if it is missing or damaged."""
    try:
        return archive.read(name)
    except (KeyError, zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError):
        return b""


def _read_xml(archive: zipfile.ZipFile, name: str) -> etree._Element:
    """Return the root of a member; an empty element if it is missing or damaged."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True)
    try:
        return etree.fromstring(_read_member(archive, name), parser)
    except etree.XMLSyntaxError:
        return etree.Element("missing")


_EMBEDDED_PICTURE = re.compile(r"!\[([^\[\]\n]*)\]\((?:data:[^()\s]*|[^()\s:]+\.\w{3,4})\)")


def _extract_markdown(
    source: SourceFile, data: bytes, media_type: str, *, page_marker: str | None = None
) -> tuple[str, Mapping[str, Any]]:
    """Return the Markdown and the metadata of bytes; put `page_marker` before each page."""
    # Imported here: the library has 76 MB.
    import kreuzberg

    config = kreuzberg.ExtractionConfig(
        use_cache=False,
        enable_quality_processing=False,
        output_format="markdown",
        extraction_timeout_secs=int(source.limits.seconds(len(source.data))),
        concurrency=kreuzberg.ConcurrencyConfig(max_threads=1),
        content_filter=kreuzberg.ContentFilterConfig(strip_repeating_text=False),
    )
    config.disable_ocr = True  # type: ignore[attr-defined]  # its stub lags behind
    config.max_archive_depth = 0
    if page_marker is not None:
        config.pages = kreuzberg.PageConfig(insert_page_markers=True, marker_format=page_marker)
    try:
        result = kreuzberg.extract_bytes_sync(data, media_type, config)
    except Exception as error:  # whatever a parser in another language raises is a damaged file
        reason = re.sub(r"^\w+Error: ", "", str(error))
        if re.search(r"encrypt|password", reason, re.IGNORECASE):
            raise source.error(EncryptedFile, "it is encrypted", "remove its password") from error
        raise source.error(CorruptFile, reason[:200], "open and save it again") from error
    text = clean_text(result.content)
    return _EMBEDDED_PICTURE.sub(r"\1", text).strip("\n") + "\n", result.metadata


# Presentations: one section and one page for each slide.

_MARK = re.compile(r"\n*\ue000(\d+)\ue000\n*")
_SLIDE_HEADING = re.compile(r"#{1,6} \S")
_SLIDE_PART = re.compile(r"slides/slide(\d+)\.xml\Z")


def _read_order(data: bytes) -> list[int]:
    """Return the places at which slides are shown, in the order of the names of their parts."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        related = _read_xml(archive, "ppt/_rels/presentation.xml.rels")
        listed = _read_xml(archive, "ppt/presentation.xml").iterfind(".//{*}sldIdLst/{*}sldId")
    parts = {
        each.get("Id"): int(part[1])
        for each in related
        if (part := _SLIDE_PART.search(each.get("Target", "")))
    }
    shown = [parts.get(each.xpath("string(@*[namespace-uri()])")) for each in listed]
    shown += sorted(set(parts.values()).difference(shown))  # slides taken out of the presentation
    places = {part: place for place, part in enumerate(shown, start=1) if part is not None}
    return [places[part] for part in sorted(places)]


def _split_slides(marked: str, order: Sequence[int]) -> tuple[str, tuple[Page, ...]]:
    """Return the Markdown without marks, each slide under a heading, and the slides' ranges."""
    _, *parts = _MARK.split(marked)
    slides = list(zip(map(int, parts[::2]), parts[1::2], strict=True))
    if len(order) == len(slides):
        slides = sorted(zip(order, parts[1::2], strict=True))
    text, pages = "", []
    for number, content in slides:
        start = len(text)
        if not _SLIDE_HEADING.match(content):
            text += f"## Slide {number}\n\n"
        text += content.strip("\n") + "\n\n"
        pages.append(Page(number, start, len(text)))
    return text, tuple(pages)


# HTML


def read_html(source: SourceFile) -> Document:
    """Read an HTML page as Markdown, without its head."""
    page = _parse_html(source, source.text)
    metadata = {"language": page.language or "", "date": page.date, "authors": page.authors}
    return make_document(source, page.text, title=page.title, metadata=metadata)


@dataclass(frozen=True, slots=True)
class _HtmlPage:
    """An HTML page: its body as Markdown, and what its head says."""

    text: str
    title: str | None
    language: str | None
    date: str
    authors: str


# A character of the private use area, as kreuzberg would escape a backslash once more.
_ESCAPE = "\ue002"
_NOTHING = "\ue003"  # only keeps kreuzberg from reading a line as Markdown
_SAVE = "save the page again"


def _parse_html(source: SourceFile, written: str) -> _HtmlPage:
    """Parse HTML as browsers do, unclosed elements included; refuse it if thousands nest."""
    _check_attributes(source, written)
    parser = lxml_html.HTMLParser(encoding="utf-8", huge_tree=True, remove_comments=True)
    try:
        root = lxml_html.document_fromstring(written.encode(), parser=parser)
    except etree.ParserError:  # nothing but comments and the like
        return _HtmlPage("", None, None, "", "")
    except etree.XMLSyntaxError as error:
        raise source.error(CorruptFile, str(error), _SAVE) from error
    if any("depth" in entry.message for entry in parser.error_log):
        raise source.error(CorruptFile, "its elements nest too deeply", _SAVE)
    title = root.findtext(".//title")
    dates = root.xpath(_STATED_DATE)
    authors = root.xpath("//meta[@name='author']/@content")
    for head in root.findall("head"):
        root.remove(head)
    etree.strip_tags(root, "mark", "ins")  # kreuzberg would put "==" around their text
    _write_formulas(root)
    _mark_superscripts(root)
    _flatten(root)
    _escape(root)
    page = _NOT_XML.sub(" ", etree.tostring(root, method="html", encoding="unicode"))
    text, _ = _extract_markdown(source, page.encode(), "text/html")
    return _HtmlPage(
        text.replace(_ESCAPE, "\\").replace(_NOTHING, ""),
        " ".join((title or "").split()) or None,
        root.get("lang"),
        str(dates[0]) if dates else "",
        "; ".join(" ".join(each.split()) for each in authors),
    )


_STATED_DATE = (
    "//meta[@property='article:published_time' or @name='date' or @name='dcterms.date']/@content"
)


_TAG = re.compile(r"<[a-zA-Z]")
# Possessive, and without an end: a quote that never closes ends a tag here, in linear time.
_INSIDE = re.compile(r"""(?:[^<>"']|"[^"]*+"|'[^']*+')*+""")
_QUOTED = re.compile(r""""[^"]*+"|'[^']*+'""")
_MOST_ATTRIBUTES = 10_000


def _check_attributes(source: SourceFile, written: str) -> None:
    """Refuse a tag of very many attributes: the parser's time grows with their square."""
    at = 0
    while tag := _TAG.search(written, at):
        inside = _INSIDE.match(written, tag.end())
        assert inside is not None
        at = inside.end()
        if at - tag.end() < 2 * _MOST_ATTRIBUTES:  # each has two characters
            continue
        count = len(_QUOTED.sub(" ", inside[0]).replace("/", " ").split())
        if count > _MOST_ATTRIBUTES:
            why = f"one of its tags has {count:,} attributes"
            raise source.error(CorruptFile, why, _SAVE)


# kreuzberg silently drops text that nests deeper than this many elements.
_DEEPEST = 40
_NOT_TEXT = ("script", "style", "template", "noscript")
_NOT_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # lxml writes no such text


def _flatten(root: lxml_html.HtmlElement) -> None:
    """Turn each element at the greatest depth into a paragraph of all its text."""
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for element in level for child in element if isinstance(child.tag, str)]
    for element in level:
        if len(element):
            etree.strip_elements(element, *_NOT_TEXT, with_tail=False)
            text = " ".join(_NOT_XML.sub(" ", element.text_content()).split())
            element.clear(keep_tail=True)
            element.tag, element.text = "p", text


def _mark_superscripts(root: lxml_html.HtmlElement) -> None:
    for element in root.iter("sup"):
        before = element.getprevious()
        text = element.getparent().text if before is None else before.tail or before.text_content()
        if mark := superscript_mark(text or "", element.text_content()):
            element.text = mark + _NOT_XML.sub(" ", element.text or "")


_BEFORE = {"msup": "^", "msub": "_", "msubsup": "_^", "mfrac": "/"}  # each part but the first


def _write_formulas(root: lxml_html.HtmlElement) -> None:
    """Turn each formula of MathML into its TeX, or into one line of its text: 10^6, a/(b+c)."""
    for math in root.findall(".//math"):
        tex = math.xpath(".//annotation[contains(@encoding, 'tex') or contains(@encoding, 'TeX')]")
        if not tex:
            etree.strip_elements(math, "annotation", "annotation-xml", with_tail=False)
            for element in math.findall(".//msqrt"):
                element.text = "\u221a("
                etree.SubElement(element, "mo").text = ")"
            for element in math.iter(*_BEFORE):
                for mark, part in zip(("", *_BEFORE[element.tag]), element, strict=False):
                    opened, closed = ("(", ")") if len(part) > 1 else ("", "")
                    part.text = mark + opened + _NOT_XML.sub(" ", part.text or "").strip()
                    part.tail = closed
        text = " ".join(_NOT_XML.sub(" ", (tex[0] if tex else math).text_content()).split())
        math.clear(keep_tail=True)
        math.tag, math.text = "span", text


# Elements inside a line; all others begin one. No line of a cell counts: a row of a table is one.
_INLINE = frozenset(
    "a abbr b bdi bdo big cite code del dfn em font i ins kbd label mark q s samp small span strike"
    " strong sub sup time tt u var".split()
)
_VERBATIM = ("pre", "code", "td", "th", *_NOT_TEXT)
_MARKDOWN = re.compile(r"\s*(?:#{1,6}(?:\s|\Z)|`{3,}|~{3,}|=+\s*\Z)")
_DASHES = re.compile(r"\s*-+\s*\Z")
_HEADING_IN_CODE = re.compile(r"^(?=[ \t]*(?:(?:=+|-+)[ \t]*$|#))", re.MULTILINE)

_Texts = list[tuple[lxml_html.HtmlElement, str]]  # elements, each with "text" or "tail"


def _escape(root: lxml_html.HtmlElement) -> None:
    """Escape lines that Markdown would take for a heading, its underline or a code fence."""
    for tag, texts in _iter_lines(root):
        line = "".join(getattr(element, name) for element, name in texts)
        # Elsewhere a blank line is before the dashes, which are then a rule.
        if _MARKDOWN.match(line) or (tag in ("br", "dd") and _DASHES.match(line)):
            element, name = next(each for each in texts if getattr(*each).strip())
            text = _NOT_XML.sub(" ", getattr(element, name))
            setattr(element, name, text[: -len(text.lstrip())] + _ESCAPE + text.lstrip())
    for element in root.xpath("//pre/descendant-or-self::*"):  # kreuzberg finds headings there too
        for name in ("text", "tail"):
            text = _NOT_XML.sub(" ", getattr(element, name) or "")
            if element.tag != "pre" or name == "text":
                setattr(element, name, _HEADING_IN_CODE.sub(_NOTHING, text))


def _iter_lines(root: lxml_html.HtmlElement) -> Iterator[tuple[str, _Texts]]:
    """Yield the texts of each line with the tag that begins it, code and tables left out."""
    begun, texts = "", _Texts()
    walk = etree.iterwalk(root, events=("start", "end"))
    for event, element in walk:
        if element.tag not in _INLINE and (event == "start" or element.tag != "br"):
            yield begun, texts
            begun, texts = element.tag, []
        if event == "start" and element.tag in _VERBATIM:
            walk.skip_subtree()
            continue
        name = "text" if event == "start" else "tail"
        if getattr(element, name):
            texts.append((element, name))
    yield begun, texts


# DOCX through mammoth, whose HTML is then read like any page's.
#
# kreuzberg's own DOCX reader (4.10.4) loses every "&", "<" and ">" of the text, flattens nested
# lists and misses lists that a style makes; mammoth does none of this.

# Styles that mammoth's own map lacks. "List Bullet 2" is the second level of a list.
_STYLES = "\n".join(
    [
        "p[style-name='Title'] => h1.title:fresh",
        *(f"p[style-name='heading {n}'] => h6:fresh" for n in (7, 8, 9)),
        *(
            f"p[style-name='List {kind} {n}'] => "
            + " > ".join(["ul|ol > li"] * (n - 1))
            + f" > {tag} > li:fresh"
            for kind, tag in (("Bullet", "ul"), ("Number", "ol"))
            for n in (2, 3, 4, 5)
        ),
    ]
)
_TITLE = re.compile(r'<h1 class="title">(.*?)</h1>')
_HEADING = re.compile(r"^(?=#{1,5} )", re.MULTILINE)


def read_docx(source: SourceFile) -> Document:
    """Read a Word document without its pictures."""
    # Imported here: few files are DOCX, and the import takes time.
    import mammoth  # type: ignore[import-untyped]

    _warn_of_parts(source, check_archive(source.data, str(source.path), source.limits))
    try:
        # Otherwise mammoth leaves out the text of simple fields.
        unwrapped = io.BytesIO(_change_parts(source.data, "word/", partial(_FIELD.sub, b"")))
        converted = mammoth.convert_to_html(
            unwrapped, style_map=_STYLES, convert_image=lambda _: []
        )
        metadata = _read_properties(source.data)
    except Exception as error:  # mammoth lets whatever the XML and zip readers raise through
        why = f"it is damaged ({error})"
        raise source.error(CorruptFile, why, "open and save it again") from error
    if any(message.message.endswith(("oMath", "oMathPara")) for message in converted.messages):
        source.warn("equations are not read")
    text = _parse_html(source, converted.value).text
    titles = _TITLE.findall(converted.value)
    if len(titles) == 1 and text.startswith("# "):
        first, line_end, rest = text.partition("\n")
        text = first + line_end + _HEADING.sub("#", rest)  # the title is above the headings
    title = metadata.get("title") if not titles else None
    return make_document(source, text, title=title, metadata=metadata)


_FIELD = re.compile(rb"""</?w:fldSimple\b(?:[^<>"']|"[^"<]*+"|'[^'<]*+')*+>""")


_CORE = "docProps/core.xml"
_PROPERTIES = {
    "title": "{http://purl.org/dc/elements/1.1/}title",
    "authors": "{http://purl.org/dc/elements/1.1/}creator",
    "subject": "{http://purl.org/dc/elements/1.1/}subject",
    "created_at": "{http://purl.org/dc/terms/}created",
    "modified_at": "{http://purl.org/dc/terms/}modified",
}


def _read_properties(data: bytes) -> dict[str, str]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if _CORE not in archive.namelist():
            return {}
        parser = etree.XMLParser(resolve_entities=False, no_network=True)
        core = etree.fromstring(archive.read(_CORE), parser)
    found = {name: (core.findtext(tag) or "").strip() for name, tag in _PROPERTIES.items()}
    return {name: value for name, value in found.items() if value}


# E-mail: the subject is the title; the text is who wrote to whom and when, then the body.

_SHOWN = ("From", "To", "Cc", "Date")
_KEPT_HEADERS = (*_SHOWN, "Subject", "Message-ID", "In-Reply-To")


def read_email(source: SourceFile) -> Document:
    """Read a message in Internet format (RFC 5322); attachments are named, not read."""
    try:
        message = email.message_from_bytes(source.data, EmailMessage, policy=email.policy.default)
        kept = {name: " ".join(str(message.get(name, "")).split()) for name in _KEPT_HEADERS}
        body = message.get_body(("plain", "html"))
        if body is None or not _read_content(body).strip():
            body = message.get_body(("html",)) or body  # the text part was blank
        mixed = message.get_content_subtype() == "mixed"
        texts = [p for p in message.iter_parts() if mixed and (p is body or _is_text(p))]
        if body is not None and body not in texts:
            texts.insert(0, body)
        attached = [
            part.get_filename() or "unnamed"
            for part in message.iter_attachments()
            if part not in texts
        ]
        parts = [(part.get_content_type(), clean_text(_read_content(part))) for part in texts]
    except (
        MessageError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        # The standard library's parser raises all of these at malformed messages.
        why = f"its message is malformed ({error})"
        raise source.error(CorruptFile, why, "save it again") from error
    metadata = {name.lower(): value for name, value in kept.items() if value}
    if attached:
        metadata["attachments"] = ", ".join(attached)
        source.warn(f"attachments are not read: {metadata['attachments']}")
    subject = kept["Subject"] or source.stem
    head = "\n".join(f"{name}: {kept[name]}" for name in _SHOWN if kept[name])
    marked_up = any(kind == "text/html" for kind, _ in parts)
    shown = [_parse_html(source, c).text if kind == "text/html" else c for kind, c in parts]
    text = "\n\n".join(part for each in (head, *shown) if (part := each.strip("\n"))) + "\n"
    if marked_up:
        return make_document(source, f"# {subject}\n\n{text}", title=subject, metadata=metadata)
    tree = partial(text_tree, prose=False)
    return make_document(source, text, tree=tree, title=subject, metadata=metadata)


def _is_text(part: MIMEPart) -> bool:
    """Report whether a mail program shows a part as text of the message, after an attachment."""
    return (
        part.get_content_type() in ("text/plain", "text/html")
        and not part.get_filename()
        and part.get_content_disposition() != "attachment"
    )


def _read_content(part: MIMEPart) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes) or not content.strip():
        return ""
    charset = part.get_content_charset()
    try:
        return content.decode(charset or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return decode(content)[0]
