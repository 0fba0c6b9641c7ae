"""Office files, e-books and e-mail.

kreuzberg reads most of them, mammoth Word documents, the standard library e-mail.
"""

from __future__ import annotations

import email
import email.policy
import io
import re
import zipfile
from collections.abc import Mapping
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart
from functools import partial
from typing import Any

from lxml import etree  # type: ignore[import-untyped]

from colligate.documents.document import Document, Page, clean_text
from colligate.documents.reading.decoding import decode
from colligate.documents.reading.formats import EPUB, PPTX, RTF, Container
from colligate.documents.reading.kreuzberg import extract_markdown
from colligate.documents.reading.limits import check_archive
from colligate.documents.reading.markup import parse_html
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.text import text_tree
from colligate.errors import CorruptFile

_NO_TITLES = {"powerpoint presentation", "document", "untitled"}  # what programs fill in
# Where a chapter of an e-book is not well-formed, its head comes as front matter.
_CHAPTER_HEAD = re.compile(r"^---\n(?:[\w:.-]+: .*\n)+---\n+", re.MULTILINE)

# A character of the private use area, which kreuzberg neither escapes nor reads as Markdown.
_PAGE_MARKER = "\n\n\ue000{page_num}\ue000\n\n"


def read_office(source: SourceFile) -> Document:
    """Read a file of any format that kreuzberg turns into Markdown."""
    form, data = source.format, source.data
    if form.container is Container.ZIP:
        members = check_archive(data, str(source.path), source.limits)
        if any(name.startswith("ppt/notesSlides/") for name in members):
            source.warn("the speaker's notes are not read")
    elif form.container is Container.TEXT and form is not RTF:
        data = source.text.encode()
    marker = _PAGE_MARKER if form is PPTX else None
    parsed = extract_markdown(source, data, form.media_type, page_marker=marker)
    text = parsed.text
    pages: tuple[Page, ...] = ()
    if form is PPTX:
        text, pages = _split_slides(text)
    elif form is EPUB:
        text = _CHAPTER_HEAD.sub("", text)
    metadata = _select_metadata(parsed.metadata)
    title = metadata.get("title", "")
    return make_document(
        source,
        text,
        title=None if title.lower() in _NO_TITLES else title,
        metadata=metadata,
        pages=pages,
    )


_KEPT = ("title", "subject", "authors", "created_at", "modified_at", "language")


def _select_metadata(found: Mapping[str, Any]) -> dict[str, str]:
    kept = {}
    for key in _KEPT:
        value = found.get(key)
        if value:
            kept[key] = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return kept


# Presentations: one section and one page for each slide.

_MARK = re.compile(r"\n*\ue000(\d+)\ue000\n*")
_SLIDE_HEADING = re.compile(r"#{1,6} \S")


def _split_slides(marked: str) -> tuple[str, tuple[Page, ...]]:
    """Return the Markdown without marks, each slide under a heading, and the slides' ranges."""
    _, *parts = _MARK.split(marked)
    text, pages = "", []
    for number, content in zip(map(int, parts[::2]), parts[1::2], strict=True):
        start = len(text)
        if not _SLIDE_HEADING.match(content):
            text += f"## Slide {number}\n\n"
        text += content.strip("\n") + "\n\n"
        pages.append(Page(number, start, len(text)))
    return text, tuple(pages)


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

    check_archive(source.data, str(source.path), source.limits)
    try:
        converted = mammoth.convert_to_html(
            io.BytesIO(source.data), style_map=_STYLES, convert_image=_drop_picture
        )
        metadata = _read_properties(source.data)
    except Exception as error:  # mammoth lets whatever the XML and zip readers raise through
        why = f"it is damaged ({error})"
        raise source.error(CorruptFile, why, "open and save it again") from error
    text = parse_html(source, converted.value).text
    titles = _TITLE.findall(converted.value)
    if len(titles) == 1 and text.startswith("# "):
        first, line_end, rest = text.partition("\n")
        text = first + line_end + _HEADING.sub("#", rest)  # the title is above the headings
    title = metadata.get("title") if not titles else None
    return make_document(source, text, title=title, metadata=metadata)


def _drop_picture(_: Any) -> list[Any]:
    return []


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
        kept = {name: _read_header(message, name) for name in _KEPT_HEADERS}
        attached = [part.get_filename() or "unnamed" for part in message.iter_attachments()]
        body = message.get_body(("plain", "html"))
        content = "" if body is None else _read_content(body)
    except (MessageError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The standard library's parser raises all of these at malformed messages.
        why = f"its message is malformed ({error})"
        raise source.error(CorruptFile, why, "save it again") from error
    metadata = {name.lower(): value for name, value in kept.items() if value}
    if attached:
        metadata["attachments"] = ", ".join(attached)
        source.warn(f"attachments are not read: {metadata['attachments']}")
    subject = kept["Subject"] or source.stem
    head = "\n".join(f"{name}: {kept[name]}" for name in _SHOWN if kept[name])
    if body is not None and body.get_content_type() == "text/html":
        marked_up = parse_html(source, content).text
        text = f"# {subject}\n\n{head}\n\n{marked_up}"
        return make_document(source, text, title=subject, metadata=metadata)
    text = "\n\n".join(part for part in (head, content.strip("\n")) if part) + "\n"
    tree = partial(text_tree, prose=False)
    return make_document(source, text, tree=tree, title=subject, metadata=metadata)


def _read_header(message: EmailMessage, name: str) -> str:
    value = message.get(name)
    return "" if value is None else " ".join(str(value).split())


def _read_content(part: MIMEPart) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes) or not content.strip():
        return ""
    charset = part.get_content_charset()
    try:
        return clean_text(content.decode(charset or "utf-8"))
    except (LookupError, UnicodeDecodeError):
        return clean_text(decode(content)[0])
