"""E-mail and calendars.

Of a message the subject is the title; the text is who wrote to whom and when, then the body.
Messages that are forwarded as attachments are part of the text; each attached file is a document of
its own, read by the reader of its format. Of a calendar each event is a paragraph of lines.
"""

from __future__ import annotations

import base64
import codecs
import email
import email.policy
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart
from functools import partial

from colligate.documents.document import SHEETS, Document, clean_text
from colligate.documents.markdown import markdown_tree
from colligate.documents.reading import read_source
from colligate.documents.reading.decoding import decode, widen_encoding
from colligate.documents.reading.formats import MHTML, detect_format
from colligate.documents.reading.html import parse_html
from colligate.documents.reading.source import SourceFile, make_document
from colligate.documents.reading.text import text_tree
from colligate.documents.tree import Tree
from colligate.errors import ColligateError, CorruptFile

_SHOWN = ("From", "To", "Cc", "Date")
_KEPT_HEADERS = (*_SHOWN, "Subject", "Message-ID", "In-Reply-To")
_DEEPEST = 5  # messages in messages
_MOST_FILES = 100
_LONGEST_HEADER = 20_000  # characters
_ENCODED = re.compile(r"=\?([\w-]+)(?=[?*])")  # words of a header, and in what
_LINK = re.compile(r"\]\([^()\s]*\)")
_WORD = re.compile(r"\w+")
# What the standard library's parser raises at malformed messages.
_MALFORMED = (MessageError, ValueError, LookupError, TypeError, AttributeError, RecursionError)
_PICTURE = re.compile(r"!\[([^\]\n]*)\]\(cid:[^()\s]*\)")


@dataclass
class _Parts:
    """What a message holds: its texts with their types, and its files with their names."""

    texts: list[tuple[str, str]] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)
    pictures: int = 0  # in the text
    too_deep: int = 0


def read_email(source: SourceFile) -> Iterator[Document]:
    """Read a message in Internet format (RFC 5322), and the files that are attached to it."""
    parts = _Parts()
    try:
        data = source.data.removeprefix(codecs.BOM_UTF8)
        message = email.message_from_bytes(data, EmailMessage, policy=email.policy.default)
        kept = {name: _read_header(message, name) for name in _KEPT_HEADERS}
        _collect(source, message, parts)
    except _MALFORMED as error:
        why = f"its message is malformed ({error})"
        raise source.error(CorruptFile, why, "save it again") from error
    if parts.too_deep:
        source.warn(f"messages in more than {_DEEPEST} others are not read: {parts.too_deep:,}")
    attached = [] if source.format == MHTML else list(_read_files(source, parts))
    metadata = {name.lower(): value for name, value in kept.items() if value}
    metadata |= {"attachments": names} if (names := ", ".join(n for n, _ in parts.files)) else {}
    subject = kept["Subject"] or source.stem
    tree: Callable[[str, str], Tree] = partial(text_tree, prose=False)
    shown = [
        _PICTURE.sub(r"\1", parse_html(source, content)[0]) if kind == "text/html" else content
        for kind, content in parts.texts
    ]
    text = "\n\n".join(part for each in shown if (part := each.strip("\n"))) + "\n"
    if any(kind == "text/html" for kind, _ in parts.texts):
        text, tree = f"# {subject}\n\n{text}", markdown_tree
    if text.strip() or not attached:
        yield make_document(source, text, title=subject, metadata=metadata, tree=tree)
    yield from attached


def _read_header(message: MIMEPart, name: str) -> str:
    """Return a header; a very long one as it is written, as parsing takes gigabytes."""
    written = next((str(v) for n, v in message.raw_items() if n.lower() == name.lower()), "")
    raw = written.encode("utf-8", "surrogateescape")
    written = _decode(raw, "utf-8", message.get_content_charset("utf-8"))
    value = _ENCODED.sub(lambda each: f"=?{widen_encoding(each[1])}", written)
    if len(value) <= _LONGEST_HEADER:
        value = str(message.policy.header_fetch_parse(name, value))
    return " ".join(clean_text(value).split())


def _collect(source: SourceFile, message: MIMEPart, parts: _Parts, depth: int = 0) -> None:
    """Add the texts and files of a message, and of those in it, in their order."""
    shown = ("Subject", *_SHOWN) if depth else _SHOWN
    head = {name: _read_header(message, name) for name in shown}
    parts.texts.append(("", "\n".join(f"{name}: {head[name]}" for name in shown if head[name])))
    body, page = message.get_body(("plain", "html")), message.get_body(("html",))
    if body and page and _is_placeholder(_read_content(body), source, _read_content(page)):
        body = page
    for part, within in _iter_leaves(message):
        kind, name = part.get_content_type(), part.get_filename()
        is_file = bool(name) or part.get_content_disposition() == "attachment"
        if kind in ("message/rfc822", "text/rfc822-headers"):
            parts.too_deep += depth == _DEEPEST
            for each in _unpack(part) if depth < _DEEPEST else ():
                _collect(source, each, parts, depth + 1)
        elif kind == "message/delivery-status":
            for each in part.iter_parts():
                lines = [f"{name}: {' '.join(str(v).split())}" for name, v in each.raw_items()]
                parts.texts.append(("", "\n".join(lines)))
        elif kind == "text/calendar" and not is_file:
            parts.texts.append(("", _write_events(_read_content(part))))
        elif part is body or (kind in ("text/plain", "text/html") and not is_file):
            if part is body or "alternative" not in within:
                parts.texts.append((kind, clean_text(_read_content(part))))
        elif within.endswith("related") and part.get_content_maintype() == "image":
            parts.pictures += 1
        else:
            content = part.get_payload(decode=True)
            if part.get_content_charset():  # which the file itself may not say
                content = clean_text(_read_content(part)).encode()
            parts.files.append((name or "unnamed", content if isinstance(content, bytes) else b""))


def _is_placeholder(plain: str, source: SourceFile, page: str) -> bool:
    """Report whether a plain text lacks most of the words of the page that it stands for."""
    try:
        shown = _LINK.sub("]", parse_html(source, clean_text(page))[0])
    except CorruptFile:
        return not plain.strip()
    words = set(_WORD.findall(shown.lower()))
    return 2 * len(words - set(_WORD.findall(plain.lower()))) > len(words)


def _unpack(part: MIMEPart) -> Iterator[MIMEPart]:
    """Yield the message in a part, or its headers alone; in base64 too, against the standards."""
    packed = part.get_payload(decode=True)
    for message in part.iter_parts():
        if str(part.get("Content-Transfer-Encoding", "")).lower() != "base64":
            yield message
        else:
            packed = base64.b64decode(str(message.get_payload()))
    if isinstance(packed, bytes):
        yield email.message_from_bytes(packed, EmailMessage, policy=email.policy.default)


def _iter_leaves(message: MIMEPart, within: str = "") -> Iterator[tuple[MIMEPart, str]]:
    """Yield the parts that have no parts, or are messages, and the kinds of what they are in."""
    if message.get_content_maintype() != "multipart":
        yield message, within
        return
    for part in message.iter_parts():
        yield from _iter_leaves(part, f"{within} {message.get_content_subtype()}")


def _read_files(source: SourceFile, parts: _Parts) -> Iterator[Document]:
    """Yield the documents of the attached files; a warning names each that cannot be read."""
    own = source.format.media_type
    for number, (name, data) in enumerate(parts.files):
        title = f"{source.path.name}, attachment {name}"
        path = source.path / re.sub(r"[\\/\x00]", "-", name)
        try:
            if source.depth == _DEEPEST or number >= _MOST_FILES:
                raise ValueError("there are too many, or it is in too many others")
            format = detect_format(path, data)
            each = SourceFile(path, data, format, source.limits, source.warnings, source.depth + 1)
            for document in read_source(each):
                kind = document.media_type if document.media_type in SHEETS else own
                yield replace(document, title=title, source=str(source.path), media_type=kind)
        except (ColligateError, ValueError) as error:
            why = error.why if isinstance(error, ColligateError) else error
            source.warn(f"the attachment {name} is not read: {why}")
    if parts.pictures:
        source.warn(f"pictures in the text are not read: {parts.pictures:,}")


# As sentences begin with "From " too, there is an address or a time, and headers below.
_MESSAGE = re.compile(
    rb"(?:\A\s*|\n\r?\n)^From (?=[^\n]*(?:@|\d:\d\d))[^\n]*+\n(?=[!-9;-~]++:)", re.MULTILINE
)


def read_mailbox(source: SourceFile) -> Iterator[Document]:
    """Read the messages of a mailbox file (mbox)."""
    for number, data in enumerate(_MESSAGE.split(source.data)[1:], start=1):
        each = replace(source, data=re.sub(rb"^>(>*From )", rb"\1", data, flags=re.MULTILINE))
        try:
            yield from read_email(each)
        except ColligateError as error:
            source.warn(f"message {number:,} is not read: {error.why}")


def _read_content(part: MIMEPart) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes) or not content.strip():
        return ""
    content = _FOLD.sub(b"", content) if part.get_content_type() == "text/calendar" else content
    return _decode(content, part.get_content_charset("utf-8"))


def _decode(data: bytes, *encodings: str) -> str:
    """Return a text in the first of the encodings that it fits, else in the likeliest."""
    for encoding in encodings:
        with suppress(LookupError, UnicodeDecodeError):
            return data.decode(widen_encoding(encoding))
    return decode(data)[0]


# Calendars (iCalendar, RFC 5545)

_LABELS = {"SUMMARY": "", "DTSTART": "Start", "DTEND": "End", "DUE": "Due", "DURATION": "Duration"}
_LABELS |= {name: name.capitalize() for name in ("LOCATION", "ORGANIZER", "ATTENDEE", "STATUS")}
_LABELS |= {"RECURRENCE-ID": "In place of", "RDATE": "Also", "EXDATE": "Except"}
_LABELS |= {"RRULE": "Repeats", "DESCRIPTION": "", "COMMENT": "Comment", "URL": "Address"}
_EVENTS = ("VEVENT", "VTODO", "VJOURNAL")
_FOLD = re.compile(rb"\r?\n[ \t]")  # of a line, perhaps inside of a letter
_PROPERTY = re.compile(r'([\w-]+)((?:;[\w-]+=(?:"[^"]*"|[^";:]*))*):(.*)')
_COMMON_NAME = re.compile(r';CN="?([^";:]*)')
_ZONE = re.compile(r';TZID="?([^";:]*)')
_MOMENT = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\d(Z?))?")
_ESCAPED = re.compile(r"\\(.)")


def read_calendar(source: SourceFile) -> Document:
    """Read the events and tasks of a calendar."""
    tree = partial(text_tree, prose=False)
    text = _write_events(replace(source, data=_FOLD.sub(b"", source.data)).text)
    text = text if text.strip() else source.text
    return make_document(source, text, tree=tree, title=source.stem)


def _write_events(text: str) -> str:
    """Return the events of a calendar as plain text."""
    events: list[list[str]] = []
    within: list[str] = []
    for line in clean_text(text).split("\n"):
        found = _PROPERTY.match(line)
        name, options, value = found.groups() if found else ("", "", "")
        name = name.upper()
        if name == "BEGIN":
            within.append(value.strip().upper())
            events += [[]] if within[-1] in _EVENTS else []
        elif name == "END":
            del within[-1:]
        elif name in _LABELS and within and within[-1] in _EVENTS:
            label = f"{_LABELS[name]}: " if _LABELS[name] else ""
            if name == "DTEND" and f"Start: {_write_value('', value)}" not in events[-1]:
                with suppress(ValueError, OverflowError):  # a day: it is the one after the last
                    value = (date.fromisoformat(value) - timedelta(1)).strftime("%Y%m%d")
            times = value.split(",") if name in ("RDATE", "EXDATE") else [value]
            events[-1].append(label + ", ".join(_write_value(options, each) for each in times))
    return "\n\n".join("\n".join(filter(None, lines)) for lines in events) + "\n"


def _write_value(options: str, value: str) -> str:
    if time := _MOMENT.fullmatch(value.strip()):
        zone = _ZONE.search(options)
        shown = "-".join(time.groups()[:3]) + (f" {time[4]}:{time[5]}" if time[4] else "")
        return shown + (" UTC" if time[6] else f" ({zone[1]})" if zone else "")
    value = _ESCAPED.sub(lambda each: "\n" if each[1] in "nN" else each[1], value)
    value = re.sub(r"^mailto:", "", value.strip(), flags=re.IGNORECASE)
    name = _COMMON_NAME.search(options)
    return f"{name[1]} <{value}>" if name and name[1] != value else value
