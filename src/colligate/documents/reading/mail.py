"""E-mail messages: the subject is the title, then who wrote to whom and when, then the body."""

from __future__ import annotations

import email
import email.policy
from email.errors import MessageError
from email.message import EmailMessage, MIMEPart

from colligate.documents.document import Document
from colligate.documents.reading.decoding import decode
from colligate.documents.reading.markup import parse_html
from colligate.documents.reading.plain import text_tree
from colligate.documents.reading.source import Source, finish, markdown_document
from colligate.errors import CorruptFile

_SHOWN = ("From", "To", "Cc", "Date")
_KEPT = (*_SHOWN, "Subject", "Message-ID", "In-Reply-To")


def read_email(source: Source) -> Document:
    """A message in Internet format (RFC 5322); attachments are named, not read.

    Raises:
        CorruptFile: if it cannot be understood.
    """
    try:
        message = email.message_from_bytes(source.data, EmailMessage, policy=email.policy.default)
        kept = {name: _header(message, name) for name in _KEPT}
        attached = [part.get_filename() or "unnamed" for part in message.iter_attachments()]
        body = message.get_body(("plain", "html"))
        content = "" if body is None else _content(body)
    except (MessageError, ValueError, LookupError, TypeError, AttributeError) as error:
        # The standard library's parser raises all of these at malformed messages.
        raise CorruptFile(
            f"cannot read {source.path}", f"its message is malformed ({error})", "save it again"
        ) from error
    metadata = {name.lower(): value for name, value in kept.items() if value}
    warnings: tuple[str, ...] = ()
    if attached:
        metadata["attachments"] = ", ".join(attached)
        warnings = (f"{source.path}: attachments are not read: {', '.join(attached)}",)
    subject = kept["Subject"] or source.stem
    head = "\n".join(f"{name}: {kept[name]}" for name in _SHOWN if kept[name])
    if body is not None and body.get_content_type() == "text/html":
        marked_up = parse_html(source, content).text
        text = f"# {subject}\n\n{head}\n\n{marked_up}"
        return markdown_document(source, text, title=subject, metadata=metadata, warnings=warnings)
    text = "\n\n".join(part for part in (head, content.strip("\n")) if part) + "\n"
    return finish(
        source,
        text,
        lambda name: text_tree(text, name, prose=False),
        title=subject,
        metadata=metadata,
        warnings=warnings,
    )


def _header(message: EmailMessage, name: str) -> str:
    value = message.get(name)
    return "" if value is None else " ".join(str(value).split())


def _content(part: MIMEPart) -> str:
    content = part.get_payload(decode=True)
    if not isinstance(content, bytes) or not content.strip():
        return ""
    charset = part.get_content_charset()
    try:
        text = content.decode(charset or "utf-8")
    except (LookupError, UnicodeDecodeError):
        return decode(content, "the body").text
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "\ufffd")
