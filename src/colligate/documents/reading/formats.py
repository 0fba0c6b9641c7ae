"""Which reader a file needs: its suffix says, and its first bytes may say otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePath

from colligate.documents.reading.decoding import binary_kind, looks_binary
from colligate.errors import CorruptFile, EncryptedFile, UnsupportedFormat


class Reader(StrEnum):
    """The readers there are."""

    PDF = "pdf"
    MARKDOWN = "markdown"
    TEXT = "text"
    HTML = "html"
    WIKITEXT = "wikitext"
    RECORDS = "records"
    EMAIL = "email"
    DOCX = "docx"
    OFFICE = "office"


class Container(StrEnum):
    """What a file must begin as."""

    TEXT = "text"
    ZIP = "zip"
    OLE = "ole"  # the compound files of older Microsoft programs
    PDF = "pdf"


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file: who reads it, its media type, and what its bytes begin as."""

    reader: Reader
    media_type: str
    container: Container = Container.TEXT


_OOXML = "application/vnd.openxmlformats-officedocument."
_ODF = "application/vnd.oasis.opendocument."


def _zip(media_type: str) -> FileFormat:
    return FileFormat(Reader.OFFICE, media_type, Container.ZIP)


def _ole(media_type: str) -> FileFormat:
    return FileFormat(Reader.OFFICE, media_type, Container.OLE)


def _marked_up(media_type: str) -> FileFormat:
    return FileFormat(Reader.OFFICE, media_type)


PDF = FileFormat(Reader.PDF, "application/pdf", Container.PDF)
TEXT = FileFormat(Reader.TEXT, "text/plain")
HTML = FileFormat(Reader.HTML, "text/html")
RTF = _marked_up("application/rtf")
DOCX = FileFormat(Reader.DOCX, _OOXML + "wordprocessingml.document", Container.ZIP)
PPTX = _zip(_OOXML + "presentationml.presentation")
XLSX = _zip(_OOXML + "spreadsheetml.sheet")
EPUB = _zip("application/epub+zip")
ODT = _zip(_ODF + "text")
ODS = _zip(_ODF + "spreadsheet")
_MARKDOWN = FileFormat(Reader.MARKDOWN, "text/markdown")
_WIKITEXT = FileFormat(Reader.WIKITEXT, "text/x-wiki")
_RECORDS = FileFormat(Reader.RECORDS, "application/x-ndjson")

FILE_FORMATS: dict[str, FileFormat] = {
    ".pdf": PDF,
    ".md": _MARKDOWN,
    ".markdown": _MARKDOWN,
    ".mdown": _MARKDOWN,
    ".txt": TEXT,
    ".text": TEXT,
    ".html": HTML,
    ".htm": HTML,
    ".xhtml": HTML,
    ".wiki": _WIKITEXT,
    ".wikitext": _WIKITEXT,
    ".mediawiki": _WIKITEXT,
    ".jsonl": _RECORDS,
    ".ndjson": _RECORDS,
    ".jsonl.gz": _RECORDS,
    ".ndjson.gz": _RECORDS,
    ".eml": FileFormat(Reader.EMAIL, "message/rfc822"),
    ".docx": DOCX,
    ".docm": DOCX,
    ".dotx": DOCX,
    ".pptx": PPTX,
    ".pptm": PPTX,
    ".ppsx": PPTX,
    ".xlsx": XLSX,
    ".xlsm": XLSX,
    ".epub": EPUB,
    ".odt": ODT,
    ".ods": ODS,
    ".doc": _ole("application/msword"),
    ".xls": _ole("application/vnd.ms-excel"),
    ".ppt": _ole("application/vnd.ms-powerpoint"),
    ".msg": _ole("application/vnd.ms-outlook"),
    ".rtf": RTF,
    ".csv": _marked_up("text/csv"),
    ".tsv": _marked_up("text/tab-separated-values"),
    ".rst": _marked_up("text/x-rst"),
    ".org": _marked_up("text/x-org"),
    ".ipynb": _marked_up("application/x-ipynb+json"),
}

# What a zip archive is, by a member it must have.
_ZIP_MEMBERS = (
    ("word/document.xml", DOCX),
    ("ppt/presentation.xml", PPTX),
    ("xl/workbook.xml", XLSX),
    ("xl/workbook.bin", XLSX),
    ("META-INF/container.xml", EPUB),
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HEAD = 1024


def suffix_of(path: PurePath) -> str:
    """The suffix in lower case, `.jsonl.gz` as one."""
    name = path.name.lower()
    double = next((s for s in (".jsonl.gz", ".ndjson.gz") if name.endswith(s)), None)
    return double or path.suffix.lower()


def detect_format(path: PurePath, data: bytes) -> FileFormat:
    """What a file is. Unmistakable content outweighs the suffix; without either it is text.

    Raises:
        UnsupportedFormat: if no reader fits.
        CorruptFile: if the content is not what the suffix promises.
        EncryptedFile: if it is an encrypted office file.
    """
    named = FILE_FORMATS.get(suffix_of(path))
    head = data[:_HEAD].lstrip(b"\xef\xbb\xbf \t\r\n")
    if head.startswith(b"%PDF-") or (named is PDF and b"%PDF-" in head):
        return PDF
    if data.startswith(_OLE):
        return _ole_format(path, data, named)
    if data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _zip_format(path, data, named)
    if head.startswith(b"{\\rtf"):
        return RTF
    if named is not None and named.reader is Reader.RECORDS:
        return named
    if looks_binary(data):
        raise UnsupportedFormat(
            f"cannot read {path}", f"it looks binary: {binary_kind(data)}", "leave it out"
        )
    if _is_html(head) and (named in (None, TEXT) or _needs_container(named)):
        return HTML
    if named is not None and _needs_container(named):
        raise CorruptFile(
            f"cannot read {path}", f"it is not a {path.suffix} file inside", "fetch it again"
        )
    return named or TEXT


def _needs_container(format: FileFormat | None) -> bool:
    return format is not None and format.container is not Container.TEXT


def _is_html(head: bytes) -> bool:
    return head[:64].lower().startswith((b"<!doctype html", b"<html"))


def _zip_format(path: PurePath, data: bytes, named: FileFormat | None) -> FileFormat:
    # The directory at the end names the members uncompressed; the full check comes later.
    for member, format in _ZIP_MEMBERS:
        if member.encode() in data:
            return format if named is None or named.container is not Container.ZIP else named
    for format in (ODT, ODS):
        if b"mimetype" + format.media_type.encode() in data[:200]:
            return format
    if named is not None and named.container is Container.ZIP:
        return named
    if f"mimetype{_ODF}".encode() in data[:200]:
        raise UnsupportedFormat(
            f"cannot read {path}", "no reader for this kind of OpenDocument", "save it as PDF"
        )
    raise UnsupportedFormat(
        f"cannot read {path}", "it looks binary: a zip archive", "unpack it and give the folder"
    )


def _ole_format(path: PurePath, data: bytes, named: FileFormat | None) -> FileFormat:
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise EncryptedFile(f"cannot read {path}", "it is encrypted", "remove its password")
    if named is not None and named.container is Container.OLE:
        return named
    for stream, suffix in (
        ("WordDocument", ".doc"),
        ("Workbook", ".xls"),
        ("PowerPoint Document", ".ppt"),
        ("__properties_version1.0", ".msg"),
    ):
        if stream.encode("utf-16-le") in data:
            return FILE_FORMATS[suffix]
    raise UnsupportedFormat(
        f"cannot read {path}", "it looks binary: a Microsoft compound file", "leave it out"
    )
