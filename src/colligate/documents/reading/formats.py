"""File formats: which reader a file needs, by its suffix and its first bytes."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath

from colligate.documents.reading.decoding import looks_binary, read_beginning
from colligate.errors import CorruptFile, EncryptedFile, UnsupportedFormat
from colligate.plugins import plugins


class Container(StrEnum):
    """The structure that the bytes of a file must have."""

    TEXT = "text"
    ZIP = "zip"
    OLE = "ole"  # the compound files of older Microsoft programs
    PDF = "pdf"
    PICTURE = "picture"


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file: its reader, its media type, and its container."""

    reader: str  # as "module:function": so a file loads the parsers of its own format alone
    media_type: str
    container: Container = Container.TEXT
    package: str = ""  # the module that it needs beside colligate's own
    extra: str = ""  # that brings it


_HERE = "colligate.documents.reading"
_SEPARATED = f"{_HERE}.tables:read_separated"
_OOXML = "application/vnd.openxmlformats-officedocument."
_ODF = "application/vnd.oasis.opendocument."


def _legacy(media_type: str) -> FileFormat:
    reader = f"{_HERE}.markup:read_legacy"
    return FileFormat(reader, media_type, Container.OLE, package="xberg", extra="legacy")


PDF = FileFormat(f"{_HERE}.pdf.reader:read_pdf", "application/pdf", Container.PDF)
TEXT = FileFormat(f"{_HERE}.text:read_text", "text/plain")
HTML = FileFormat(f"{_HERE}.html:read_html", "text/html")
RTF = FileFormat(f"{_HERE}.rtf:read_rtf", "application/rtf")
DOCX = FileFormat(f"{_HERE}.word:read_docx", _OOXML + "wordprocessingml.document", Container.ZIP)
PPTX = FileFormat(
    f"{_HERE}.office:read_pptx", _OOXML + "presentationml.presentation", Container.ZIP
)
XLSX = FileFormat(f"{_HERE}.workbooks:read_xlsx", _OOXML + "spreadsheetml.sheet", Container.ZIP)
EPUB = FileFormat(f"{_HERE}.markup:read_epub", "application/epub+zip", Container.ZIP)
ODT = FileFormat(f"{_HERE}.opendocument:read_odt", _ODF + "text", Container.ZIP)
ODS = FileFormat(f"{_HERE}.workbooks:read_ods", _ODF + "spreadsheet", Container.ZIP)
XLS = FileFormat(
    f"{_HERE}.workbooks:read_xls", "application/vnd.ms-excel", Container.OLE, "xlrd", "legacy"
)
_TABS = FileFormat(_SEPARATED, "text/tab-separated-values")
CSV = FileFormat(_SEPARATED, "text/csv")
XML_WORKBOOK = FileFormat(f"{_HERE}.workbooks:read_xml_workbook", XLS.media_type)
MHTML = FileFormat(f"{_HERE}.mail:read_email", "multipart/related")
SUBTITLES = FileFormat(f"{_HERE}.subtitles:read_subtitles", "text/vtt")
PNG, JPEG, TIFF = (
    FileFormat(f"{_HERE}.pdf.reader:read_picture", f"image/{kind}", Container.PICTURE)
    for kind in ("png", "jpeg", "tiff")
)
PICTURES = {b"\x89PNG": PNG, b"\xff\xd8\xff": JPEG, b"II*\x00": TIFF, b"MM\x00*": TIFF}
"""The formats that OCR reads, by the first bytes of their files."""
_MARKDOWN = FileFormat(f"{_HERE}.text:read_markdown", "text/markdown")
_WIKITEXT = FileFormat(
    f"{_HERE}.wikitext:read_wikitext", "text/x-wiki", package="mwparserfromhell", extra="wikitext"
)
_XML = FileFormat(f"{_HERE}.articles:read_xml", "application/xml")
_RECORDS = FileFormat(f"{_HERE}.records:read_records", "application/x-ndjson")

FILE_FORMATS: dict[str, FileFormat] = {
    suffix: format
    for format, suffixes in (
        (PDF, ".pdf"),
        (PNG, ".png"),
        (JPEG, ".jpg .jpeg"),
        (TIFF, ".tif .tiff"),
        (_MARKDOWN, ".md .markdown .mdown .mdx .qmd .rmd"),
        (TEXT, ".txt .text"),
        (HTML, ".html .htm .xhtml"),
        (_WIKITEXT, ".wiki .wikitext .mediawiki"),
        (_RECORDS, ".jsonl .ndjson .jsonl.gz .ndjson.gz"),
        (FileFormat(f"{_HERE}.mail:read_email", "message/rfc822"), ".eml"),
        (MHTML, ".mht .mhtml"),
        (FileFormat(f"{_HERE}.mail:read_mailbox", "application/mbox"), ".mbox"),
        (FileFormat(f"{_HERE}.mail:read_calendar", "text/calendar"), ".ics"),
        (SUBTITLES, ".vtt .srt .sbv"),
        (DOCX, ".docx .docm .dotx"),
        (PPTX, ".pptx .pptm .ppsx"),
        (XLSX, ".xlsx .xlsm"),
        (EPUB, ".epub"),
        (ODT, ".odt"),
        (ODS, ".ods"),
        (_legacy("application/msword"), ".doc"),
        (XLS, ".xls"),
        (_legacy("application/vnd.ms-powerpoint"), ".ppt"),
        (_legacy("application/vnd.ms-outlook"), ".msg"),
        (RTF, ".rtf"),
        (CSV, ".csv"),
        (_TABS, ".tsv"),
        (FileFormat(f"{_HERE}.outlines:read_rst", "text/x-rst"), ".rst .rest"),
        (FileFormat(f"{_HERE}.latex:read_latex", "text/x-tex"), ".tex .ltx"),
        (FileFormat(f"{_HERE}.records:read_json", "application/json"), ".json"),
        (_XML, ".xml .nxml .dbk .docbook"),
        (FileFormat(f"{_HERE}.outlines:read_org", "text/org"), ".org"),
        (FileFormat(f"{_HERE}.outlines:read_asciidoc", "text/asciidoc"), ".adoc .asciidoc"),
        (FileFormat(f"{_HERE}.markup:read_notebook", "application/x-ipynb+json"), ".ipynb"),
    )
    for suffix in suffixes.split()
}


def installed_readers() -> list[str]:
    """Return what reads formats beside the base: packages of extras, suffixes of other packages."""
    packages = {each.package for each in FILE_FORMATS.values() if each.package}
    return sorted(filter(importlib.util.find_spec, packages)) + list(plugins("formats"))


def known_format(path: PurePath) -> FileFormat | None:
    """Return the format that a file's suffix names, one of another package before our own."""
    return _plugin_format(path) or FILE_FORMATS.get(suffix_of(path))


def _plugin_format(path: PurePath) -> FileFormat | None:
    """Return the format that another package registers for a suffix in `colligate.formats`."""
    if (entry := plugins("formats").get(suffix_of(path)[1:])) is None:
        return None
    return FileFormat(f"{entry.module}:{entry.attr}", "application/octet-stream")


def suffix_of(path: PurePath) -> str:
    """Return the suffix in lower case; two where both name a format (`.jsonl.gz`)."""
    name = PurePath(path.name.lower())
    double = "".join(name.suffixes[-2:])
    return double if double in FILE_FORMATS or double[1:] in plugins("formats") else name.suffix


_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HEAD = 1024


def detect_format(path: PurePath, data: bytes) -> FileFormat:
    """Return the format of a file: that of a suffix that another package registers, else of
    unmistakable content, else of the suffix; a file with neither is text."""
    if registered := _plugin_format(path):
        return registered
    named = FILE_FORMATS.get(suffix_of(path))
    needs_container = named is not None and named.container is not Container.TEXT
    head = data[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"%PDF-") or (named is PDF and b"%PDF-" in head):
        return PDF
    if picture := next((PICTURES[mark] for mark in PICTURES if data.startswith(mark)), None):
        return picture
    if data.startswith(_OLE):
        return _detect_ole(path, data, named)
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _detect_zip(path, data, named)
    if head.startswith(b"{\\rtf"):
        return RTF
    if named is _RECORDS:  # may be compressed
        return named
    if looks_binary(data):
        raise _unsupported(path, "it is not text but binary data", "leave it out")
    if needs_container or named in (None, TEXT, HTML, CSV, _XML):
        begun = read_beginning(data, _HEAD)
        found = next((form for form, begin in _BEGINNINGS.items() if begin.match(begun)), None)
        if found is not None and (named is not HTML or found is MHTML):
            return found
        if needs_container and _MARKUP.match(begun):
            return HTML
    if named in (XLS, XLSX, ODS):
        return CSV
    if named in (None, TEXT) and _is_table(read_beginning(data, 16 * _HEAD)):
        return _TABS
    if needs_container:
        why = f"its content is plain text, not {path.suffix}"
        raise CorruptFile(f"cannot read {path}", why, "fetch it again, or name it .txt")
    return named or TEXT


def _is_table(text: str) -> bool:
    """Report whether nearly all lines have the same number of tabs, two or more, inside."""
    counts = [line.lstrip().count("\t") for line in text.splitlines() if line.strip()]
    most, lines = Counter(counts).most_common(1)[0] if counts else (0, 0)
    return most > 1 and lines > 3 and lines >= 0.95 * (len(counts) - 1)  # the last may be cut


def describe_mismatch(path: PurePath, found: FileFormat) -> str:
    """Return a line that says that a file's content is not what its name says; "" if it is."""
    named = known_format(path)
    if named is None or named == found:
        return ""
    content = next((suffix for suffix, each in FILE_FORMATS.items() if each == found), "XML")
    return f"its name says {path.suffix}, its content is {content} and was read as that"


_BEGINNINGS = {
    HTML: re.compile(r"<(?:!doctype html|html)\b", re.IGNORECASE),
    XML_WORKBOOK: re.compile(
        r"<\?xml.{,900}?urn:schemas-microsoft-com:office:spreadsheet", re.DOTALL
    ),
    MHTML: re.compile(r"(?:[\w-]+:.*\r?\n(?:[ \t].*\r?\n)*){,20}?MIME-Version:", re.IGNORECASE),
    SUBTITLES: re.compile(r"WEBVTT\b|\d+\s*\n[\d:]{5,8},\d{3}[ ]-->[ ]\d"),
}
# What else browsers take for a page (MIME Sniffing, section 7.1), and <meta>.
_MARKUP = re.compile(
    r"(?:<\?xml[^>]*>\s*)?<(?:!--|(?:head|script|iframe|h1|div|font|table|a|style|title|b|body|br|p"
    r"|meta)[\s>])",
    re.IGNORECASE,
)

# The formats of archives and compound files, by what one of them must have.
_ZIP_MEMBERS = {"word/document.xml": DOCX, "ppt/presentation.xml": PPTX, "xl/workbook.xml": XLSX}
_ZIP_MEMBERS |= {"xl/workbook.bin": XLSX, "META-INF/container.xml": EPUB}
_OLE_STREAMS = {"WordDocument": ".doc", "Workbook": ".xls", "PowerPoint Document": ".ppt"}
_OLE_STREAMS |= {"__properties_version1.0": ".msg"}


def _detect_zip(path: PurePath, data: bytes, named: FileFormat | None) -> FileFormat:
    # The directory at the end names the members uncompressed; the full check comes later.
    found = [each for each in (ODT, ODS) if f"mimetype{each.media_type}".encode() in data[:200]]
    found += [format for member, format in _ZIP_MEMBERS.items() if member.encode() in data]
    if named is not None and (named in found or (not found and named.container is Container.ZIP)):
        return named
    if found:
        return found[0]
    if f"mimetype{_ODF}".encode() in data[:200]:
        raise _unsupported(path, "no reader for this kind of OpenDocument", "save it as PDF")
    raise _unsupported(path, "it is not text but a zip archive", "unpack it and give the folder")


def _detect_ole(path: PurePath, data: bytes, named: FileFormat | None) -> FileFormat:
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise EncryptedFile(f"cannot read {path}", "it is encrypted", "remove its password")
    if named is not None and named.container is Container.OLE:
        return named
    for stream, suffix in _OLE_STREAMS.items():
        if stream.encode("utf-16-le") in data:
            return FILE_FORMATS[suffix]
    raise _unsupported(path, "it is not text but a Microsoft compound file", "leave it out")


def _unsupported(path: PurePath, why: str, hint: str) -> UnsupportedFormat:
    return UnsupportedFormat(f"cannot read {path}", why, hint)
